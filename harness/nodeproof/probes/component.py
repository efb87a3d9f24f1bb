"""Probes of components: metrics, running configurations, flags, and servers at an address."""

from __future__ import annotations

import contextlib
import http.client
import ssl
from typing import TYPE_CHECKING

from nodeproof.cluster.api import ApiError
from nodeproof.cluster.published import configz, counting_since_s, kubelet_configz, total
from nodeproof.cluster.resources import node as node_path
from nodeproof.labs.base.spec import ETCD_PORT, KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.measuring import CLOUD_MANAGER, MANAGER, SCHEDULER
from nodeproof.machines.machine import MachineError
from nodeproof.model.formula import field_at
from nodeproof.model.judgment import words_in
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import Json, value_at
from nodeproof.model.problem import Problem
from nodeproof.probes.probe import COMMAND_TIMEOUT_S, Probe, Sample, output_of
from nodeproof.waiting import retry_on

_METRICS_AT = {"kube-controller-manager": MANAGER, "kube-scheduler": SCHEDULER}
_GATHERED_S, _PERIOD_S = 45.0, 2.0
"""A kubelet samples every 10 to 15 s; for a container that it does not know yet it exports nothing, or 0."""

_PROXY_TIMEOUT_S = 10.0
"""The API server keeps connections to a kubelet that ended, and reports the first use of each as an error."""


def metric(component: str, name: str, **labels: str) -> Probe:
    """Return a probe of the sum of a metric's samples that have these labels; None if there are none.

    A counter that counted nothing is not exported.

    Args:
        component: kube-apiserver, kube-controller-manager, kube-scheduler, or a node for its kubelet.
        name: The metric's name.
        **labels: The labels that a sample must have.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read(lab: LabHandle) -> Sample:
        text = _text(lab, component)
        return Sample(total(text, name, labels), counting_since_s(text, name))

    return Probe(f"{name}{{{selector}}}", component, read)


def resource_metric(node: str, name: str, **labels: str) -> Probe:
    """Return a probe of the sum of a metric's samples with these labels at a kubelet's /metrics/resource.

    The value is a whole number as text, empty if there are no samples. The probe reads until it is above 0,
    or until the kubelet had time to sample.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read_total(lab: LabHandle) -> float | None:
        return total(lab.cluster.api.text(f"{node_path(node)}/proxy/metrics/resource"), name, labels)

    def read_positive(lab: LabHandle) -> str:
        sum_ = read_total(lab)
        if not sum_:
            raise LookupError(name)
        return str(int(sum_))

    def read(lab: LabHandle) -> str:
        with contextlib.suppress(LookupError):
            return retry_on(
                lambda: read_positive(lab), LookupError, timeout_s=_GATHERED_S, period_s=_PERIOD_S
            )
        sum_ = read_total(lab)
        return "" if sum_ is None else str(int(sum_))

    return Probe(f"{name}{{{selector}}}", node, read)


def _text(lab: LabHandle, component: str) -> str:
    api = lab.cluster.api
    if component in _METRICS_AT:
        return api.text_at(f"{_METRICS_AT[component]}/metrics")
    if component == "kube-apiserver":
        return api.text("/metrics")
    return api.text(f"{node_path(component)}/proxy/metrics")


_CONFIGZ_AT = {"kube-controller-manager": MANAGER, CLOUD: CLOUD_MANAGER}


def kubelet_field(node: str, path: str) -> Probe:
    """Return a probe of a kubelet's setting, such as `memorySwap.swapBehavior`; None if it is not set."""

    def read(lab: LabHandle) -> Json:
        api = lab.cluster.api
        return value_at(
            path, retry_on(lambda: kubelet_configz(api, node), ApiError, timeout_s=_PROXY_TIMEOUT_S)
        )

    return Probe(f"/configz {path}", node, read)


def manager_field(component: str, path: str) -> Probe:
    """Return a probe of a controller manager's configuration at a path; None if it is not set.

    A path is, for example, `KubeCloudShared.NodeMonitorPeriod`.
    """

    def read(lab: LabHandle) -> Json:
        try:
            return field_at(path, configz(lab.cluster.api, _CONFIGZ_AT[component]))
        except KeyError:
            return None

    return Probe(f"/configz {path}", component, read)


def flag_of(component: str, flag: str) -> Probe:
    """Return a probe of a component's flag, such as `node-monitor-period`; None if it was not set."""

    def read(lab: LabHandle) -> str | None:
        settings = [
            option for option in lab.fleet.command_lines()[component] if option.startswith(f"--{flag}=")
        ]
        return settings[-1].partition("=")[2] if settings else None

    return Probe(f"--{flag}", component, read)


def leader(component: str) -> Probe:
    """Return a probe of the control plane, such as `control-plane-2`, whose replica of a component leads."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{component}"

    def read(lab: LabHandle) -> str:
        return str(lab.cluster.api.get(path)["spec"].get("holderIdentity") or "").partition("_")[0]

    return Probe("leader", component, read)


def etcd_leader() -> Probe:
    """Return a probe of the control plane, such as `control-plane-2`, whose member of etcd leads.

    The value is empty if none leads.
    """

    def read(lab: LabHandle) -> str:
        planes = lab.fleet.control_planes().items()
        return next((name for name, address in planes if _is_etcd_leader(lab, address)), "")

    return Probe("leader", "etcd", read)


def _is_etcd_leader(lab: LabHandle, address: str) -> bool:
    """Return whether a member of etcd reports that it leads. Raises Problem."""
    try:
        with contextlib.closing(http.client.HTTPConnection(address, ETCD_PORT)) as connection:
            connection.sock = lab.fleet.dial(address, ETCD_PORT, _TIMEOUT_S)
            connection.sock.settimeout(_TIMEOUT_S)
            connection.request("GET", "/metrics")
            text = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException) as error:
        message = f"etcd at {address}: {error}"
        raise Problem(message, f"lab {lab.name}", "see the log of etcd") from error
    return total(text, "etcd_server_is_leader", {}) == 1


_UP_TIMEOUT_S = 60.0
"""From a boot to a kubelet that serves, on an emulated machine."""

_ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3
"""


def healthz(machine: str, port: int) -> Probe:
    """Return a probe of a kubelet's answer on its healthzPort, read on the machine once it listens there."""

    def request(lab: LabHandle) -> str:
        return output_of(lab, machine, ["bash", "-c", _ASK, str(port)]).strip()

    def read(lab: LabHandle) -> str:
        return retry_on(lambda: request(lab), MachineError, timeout_s=_UP_TIMEOUT_S, period_s=0.2)

    return Probe("/healthz", machine, read)


ANSWERS = "answers"
_TIMEOUT_S = 3.0
"""For the connection, and again for the TLS handshake: within a lab each takes milliseconds."""


def api_at(node: str, address: str, port: int) -> Probe:
    """Return a probe of the API at an address, called by a node's kubelet: `answers`, or the error.

    The API proves itself by its certificate. Only process nodes have this probe.
    """

    def read(lab: LabHandle) -> str:
        argv = [
            str(lab.components.path("kubectl")),
            "--kubeconfig=/etc/kubernetes/kubeconfig",
            f"--server=https://{address}:{port}",
            f"--request-timeout={_TIMEOUT_S:g}s",
            *("get", "--raw", "/livez"),
        ]
        completed = lab.fleet.machine(node).run(argv, timeout_s=COMMAND_TIMEOUT_S)
        message = completed.stderr.strip().splitlines()[-1:] or [f"exit {completed.status}"]
        return ANSWERS if completed.status == 0 and completed.stdout == "ok" else message[0]

    return Probe(f"API at {address}:{port}", node, read)


def kubelet_at(node: str, address: str) -> Probe:
    """Return a probe of a Node's kubelet at an address: `answers`, or the error.

    The kubelet proves itself by its certificate. The call comes from where the lab's networks meet: the route
    to a `control` address is not by `data`.
    """
    return Probe(f"kubelet at {address}", node, lambda lab: _answer(lab, node, address, ""))


def kubelet_from_outside(node: str, address: str) -> Probe:
    """Return a probe of a Node's kubelet at an address, called from outside: `answers`, or the error.

    The kubelet proves itself by its certificate. The caller's address is in none of the cluster's networks.
    """
    what = f"kubelet at {address}, from outside"
    return Probe(what, node, lambda lab: _answer(lab, node, address, OUTSIDE_ADDRESS))


def _answer(lab: LabHandle, node: str, address: str, source: str) -> str:
    context = ssl.create_default_context(cafile=str(lab.dir / "pki" / "ca.crt"))
    try:
        with lab.fleet.dial(address, KUBELET_PORT, _TIMEOUT_S, source) as plain:
            plain.settimeout(_TIMEOUT_S)
            with context.wrap_socket(plain, server_hostname=node):
                return ANSWERS
    except OSError as error:
        return str(error)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Probe)  # noqa: PLE0605
