"""Probes: reads of state that is not an object of the API: of components, machines and volumes."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from ipaddress import ip_network
from itertools import combinations
from typing import TYPE_CHECKING

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import configz, counting_since_s, kubelet_configz, total
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import WITNESS_FOLDER, WRITTEN, Pod
from nodeproof.faults.providers import DISKS, handle
from nodeproof.labs.base.spec import ETCD_PORT, KUBELET_PORT, OUTSIDE_ADDRESS
from nodeproof.labs.client.handle import CLOUD_MANAGER, MANAGER, SCHEDULER, LabHandle
from nodeproof.labs.client.supervised import leader as leader_of
from nodeproof.machines.machine import MachineError, checked
from nodeproof.model.formula import field_at
from nodeproof.model.judgment import with_effect, words_in
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.pattern import Json, value_at
from nodeproof.model.pod_log import WROTE
from nodeproof.model.problem import Problem
from nodeproof.model.quantity import amount
from nodeproof.waiting import retry_on, wait_until

COMMAND_TIMEOUT_S = 30.0
_QUORUM_TIMEOUT_S = 120.0
"""From the boot of a control plane to its first answer, with a slow election in between."""


@dataclass(frozen=True)
class Sample:
    """Value of a metric and when the process that counts it started (s since the epoch).

    `process_s` is None for a gauge, and if the process does not export it.
    """

    value: Json
    process_s: float | None = None


@dataclass(frozen=True)
class Probe:
    """How to read `what` of `subject`: a value, or a `Sample` of it.

    `read` raises ApiError, MachineError or Problem if nothing could be read.
    """

    what: str
    subject: str
    read: Callable[[LabHandle], Json]


def output_of(lab: LabHandle, node: str, argv: list[str]) -> str:
    """Return the output of a command on a node.

    Raises:
        MachineError: It fails.
        Problem: It is a node of somebody's own cluster that is not marked.
    """
    if lab.kind.is_attached and node not in lab.fleet.node_names():
        raise Problem(f"{node} is not marked", f"lab {lab.name}", "read another node")
    return checked(lab.fleet.machine(node).run(argv, timeout_s=COMMAND_TIMEOUT_S), f"{node}: {argv[0]}")


@with_effect("reads")
def field_of(path: str, field: str) -> Probe:
    """Return a probe of a field such as `metadata.uid` of an object at a path (`/api/v1/nodes/node-1`)."""

    def read(lab: LabHandle) -> Json:
        document = lab.cluster.api.get(path)
        if document.get("kind") in ("Secret", "SecretList"):
            step = "read another object: the value is in the report"
            raise Problem(f"{path} is a Secret", "field_of(...)", step)
        return value_at(field, document)

    return Probe(field, path, read)


@with_effect("reads")
def node_field(node: str, field: str) -> Probe:
    """Return a probe of a field of a Node, a dotted path such as `status.conditions`."""
    return field_of(node_path(node), field)


def config_maps(namespace: str, control_plane: str) -> Probe:
    """Return a probe of the names of a namespace's ConfigMaps, as one control plane lists them.

    A LIST without a resourceVersion is as recent as a quorum of etcd. The probe repeats it until it is
    answered.
    """

    def read(lab: LabHandle) -> list[str]:
        address = lab.fleet.control_planes()[control_plane]

        def dial(_host: str, port: int, timeout_s: float) -> socket.socket:
            return lab.fleet.dial(address, port, timeout_s)

        own = Api(lab.dir / "pki" / "admin.kubeconfig", dial)
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        items = retry_on(lambda: own.get(path), ApiError, timeout_s=_QUORUM_TIMEOUT_S)["items"]
        return sorted(str(item["metadata"]["name"]) for item in items)

    return Probe(f"ConfigMaps at {control_plane}", namespace, read)


@with_effect("reads")
def size_ratio(path: str, than: str) -> Probe:
    """Return a probe of the size ratio of two API objects, given by their paths, without managedFields.

    The sizes are those as JSON; the ratio is rounded down to a whole number.
    """
    return Probe(f"size in sizes of {than}", path, lambda lab: str(_bytes(lab, path) // _bytes(lab, than)))


def _bytes(lab: LabHandle, path: str) -> int:
    document = lab.cluster.api.get(path)
    document["metadata"].pop("managedFields", None)
    return len(json.dumps(document, separators=(",", ":")).encode())


@with_effect("reads")
def overlapping_ranges() -> Probe:
    """Return a probe of all Nodes' pod CIDRs: the number of `ranges` and of `overlapping` pairs of them."""

    def read(lab: LabHandle) -> Json:
        items = lab.cluster.api.get(WATCHED["nodes"])["items"]
        ranges = [ip_network(cidr) for item in items for cidr in item["spec"].get("podCIDRs", ())]
        pairs = combinations(ranges, 2)
        return {"ranges": len(ranges), "overlapping": sum(one.overlaps(other) for one, other in pairs)}

    return Probe("podCIDRs", "all Nodes", read)


_THOUSANDTHS = 1000


@with_effect("reads")
def resources_of(node: str) -> Probe:
    """Return a probe of a Node's `capacity` and `allocatable`, by resource: `cpu` in millicores.

    All other resources are in their units, so memory is in bytes.
    """

    def read(lab: LabHandle) -> Json:
        status = lab.cluster.api.get(node_path(node))["status"]
        return {what: as_numbers(status[what]) for what in ("capacity", "allocatable")}

    return Probe("resources", node, read)


def as_numbers(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return resources as numbers, from the form in the API (`cpu: 950m`, `memory: 2Gi`).

    Raises:
        ValueError: A quantity is invalid, or not a whole number.
    """
    return {name: _whole(amount(text), text, name) for name, text in quantities.items()}


def _whole(number: Fraction, text: str, name: str) -> int:
    scaled = number * _THOUSANDTHS if name == "cpu" else number
    if scaled.denominator != 1:
        raise ValueError(f"{text!r} of {name} is not a whole number")
    return scaled.numerator


def described(node: str) -> Probe:
    """Return a probe of the sections of a Node's description: the value of each key in them.

    The key is that of a `key: value` line, or the first word of a table row, whose value is the second word.
    """

    def read(lab: LabHandle) -> dict[str, dict[str, str]]:
        completed = lab.cluster.run_kubectl(("describe", "node", node), COMMAND_TIMEOUT_S, "")
        if completed["status"] != 0:
            reason = f"kubectl describe: {completed['stderr']}".strip()
            raise Problem(reason, f"lab {lab.name}", "see the log of kube-apiserver")
        return sections(str(completed["stdout"]))

    return Probe("kubectl describe node", node, read)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of a description by their headings."""
    parts: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith(" "):
            rows = parts.setdefault(line.partition(":")[0], {})
        elif len(words) > 1:
            rows[words[0].rstrip(":")] = words[1]
            key, colon, value = line.partition(":")
            if colon:
                rows[key.strip()] = value.strip()
    return parts


_PAGE = "/stats/summary"


@with_effect("reads")
def swap_stats(node: str, field: str, pod: Pod | None = None, container: str = "") -> Probe:
    """Return a probe of a swap field such as `swapUsageBytes` of a node, a pod or a pod's container.

    The kubelet reports it at /stats/summary. The value is a whole number as text, empty if there is none.
    """
    name = pod.name if pod else ""

    def read(lab: LabHandle) -> str:
        summary = lab.cluster.api.get(f"{node_path(node)}/proxy{_PAGE}")
        value = swap_of(summary, name, container).get(field)
        return "" if value is None else str(value)

    prefix = f"{container} " if container else ""
    return Probe(f"{_PAGE} {prefix}{field}", name or node, read)


def swap_of(summary: Json, pod: str, container: str) -> Mapping[str, Json]:
    """Return the swap of a pod's container, of a pod, or else of the node, from a summary."""
    stats: Json = summary["node"]
    if pod:
        stats = next((entry for entry in summary["pods"] if entry["podRef"]["name"] == pod), {})
    if container:
        stats = next((entry for entry in stats.get("containers", ()) if entry["name"] == container), {})
    swap: Mapping[str, Json] = stats.get("swap") or {}
    return swap


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


def zone_metric(name: str, zone: str) -> Probe:
    """Return a probe of a gauge or counter of the node controller, such as `zone_size`, for a zone."""
    return metric("kube-controller-manager", f"node_collector_{name}", zone=f":\x00:{zone}")


def forced_detaches(reason: str) -> Probe:
    """Return a probe of how many volumes the controller manager detached by force, for a reason."""
    name = "attach_detach_controller_attachdetach_controller_forced_detaches"
    return metric("kube-controller-manager", name, reason=reason)


@with_effect("reads")
def resource_metric(node: str, name: str, **labels: str) -> Probe:
    """Return a probe of the sum of a metric's samples with these labels at a kubelet's /metrics/resource.

    The value is a whole number as text, empty if there are no samples. The probe reads until it is above 0,
    or until the kubelet had time to sample.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))

    def read_total(lab: LabHandle) -> float | None:
        return total(lab.cluster.api.text(f"{node_path(node)}/proxy/metrics/resource"), name, labels)

    def read(lab: LabHandle) -> str:
        sum_ = wait_until(lambda: read_total(lab), _GATHERED_S, _PERIOD_S)
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


@with_effect("reads")
def kubelet_field(node: str, path: str) -> Probe:
    """Return a probe of a kubelet's setting, such as `memorySwap.swapBehavior`; None if it is not set."""

    def read(lab: LabHandle) -> Json:
        api = lab.cluster.api
        settings = retry_on(lambda: kubelet_configz(api, node), ApiError, timeout_s=_PROXY_TIMEOUT_S)
        return value_at(path, settings)

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
        name = f"--{flag}="
        options = [line for line in lab.fleet.command_lines()[component] if line.startswith(name)]
        return options[-1].removeprefix(name) if options else None

    return Probe(f"--{flag}", component, read)


@with_effect("reads")
def leader(component: str) -> Probe:
    """Return a probe of the control plane, such as `control-plane-2`, whose replica of a component leads."""
    return Probe("leader", component, lambda lab: leader_of(lab.cluster.api, component))


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
"""From a boot to a kubelet that serves, and until a container runs, on a busy emulated machine."""

_ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3
"""


@with_effect("reads")
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


@with_effect("reads")
def file_of(node: str, path: str) -> Probe:
    """Return a probe of a file's content, without surrounding white space; empty if there is no file."""
    argv = ["sh", "-c", '[ ! -e "$0" ] || cat "$0"', path]
    return Probe(path, node, lambda lab: output_of(lab, node, argv).strip())


@with_effect("reads")
def wall_clock(node: str) -> Probe:
    """Return a probe of a node's own clock (whole seconds since 1970)."""
    return Probe("wall clock", node, lambda lab: int(output_of(lab, node, ["date", "+%s"])))


@with_effect("reads")
def dbus_property(node: str, service: str, path: str, interface: str, name: str) -> Probe:
    """Return a probe of a property on the node's system bus; needs the feature `systemd`."""
    argv = ["busctl", "--json=short", "get-property", service, path, interface, name]
    return Probe(f"{interface}.{name}", node, lambda lab: json.loads(output_of(lab, node, argv))["data"])


INHIBITORS = "shutdown inhibitors"
KUBELET_LOCK = "shutdown kubelet Kubelet needs time to handle node shutdown delay"
"""The line of a kubelet that delays shutdowns."""
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


@with_effect("reads")
def inhibitors(node: str) -> Probe:
    """Return a probe of the shutdown locks, one per line: `what who why mode`; needs `systemd`."""

    def read(lab: LabHandle) -> str:
        output = output_of(lab, node, ["busctl", "--json=short", "call", *_LOGIN, "ListInhibitors"])
        return "\n".join(" ".join(entry[:4]) for entry in json.loads(output)["data"][0])

    return Probe(INHIBITORS, node, read)


_UNIT_BYTES = 1024
"""The unit of each figure in /proc/meminfo that is marked kB (proc_meminfo(5))."""


@with_effect("reads")
def meminfo(node: str, name: str) -> Probe:
    """Return a probe of a figure of the node's /proc/meminfo, such as `MemTotal` or `SwapTotal` (bytes)."""

    def read(lab: LabHandle) -> int:
        for line in output_of(lab, node, ["cat", "/proc/meminfo"]).splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return int(value.split()[0]) * _UNIT_BYTES
        raise MachineError(f"{node}: no {name} in /proc/meminfo")

    return Probe(name, node, read)


_ANYWHERE = "198.51.100.1"
"""A documentation address (RFC 5737): only the route is looked up, nothing is sent."""


@with_effect("reads")
def source_address(machine: str) -> Probe:
    """Return a probe of the IPv4 address that a machine's kernel chooses for its default route."""

    def read(lab: LabHandle) -> str:
        (route,) = json.loads(output_of(lab, machine, ["ip", "-j", "route", "get", _ANYWHERE]))
        return str(route["prefsrc"])

    return Probe("address on the default route", machine, read)


# A kubelet may be one of several programs in its executable, so run it under the name that it has there.
_READ = r"""
. /etc/os-release
kubelet=/proc/$(systemctl show --property=MainPID --value kubelet.service)
cat <<END
kernel=$(uname -r)
os=$(uname -s)
processor=$(uname -m)
distribution=$PRETTY_NAME
runtime=$(ctr version | sed -n '/^Server/,$ s/^ *Version: *//p')
kubelet=$("$(readlink "$kubelet/exe")" --version)
command=$(tr '\0' ' ' <"$kubelet/cmdline")
machine_id=$(cat /etc/machine-id)
system_uuid=$(cat /sys/class/dmi/id/product_uuid)
boot_id=$(cat /proc/sys/kernel/random/boot_id)
hostname=$(uname -n)
addresses=$(hostname -I)
cpus=$(nproc)
memory_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
END
"""
_UNCHANGED = ("kernel", "distribution", "command", "machine_id", "system_uuid", "boot_id", "hostname")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's name of an architecture, by the kernel's."""


@with_effect("reads")
def machine_facts(node: str) -> Probe:
    """Return a probe of a machine's own facts; needs the feature `systemd`.

    They are `kernel`, `os`, `architecture`, `distribution`, `runtime` and `kubelet` (versions of what runs),
    the kubelet's `command`, `machine_id`, `system_uuid`, `boot_id`, `hostname`, its `addresses`, the number
    of `cpus`, and `memory` (bytes).
    """

    def read(lab: LabHandle) -> Json:
        values = parse_values(output_of(lab, node, ["sh", "-c", _READ]))
        missing = sorted(name for name, value in values.items() if not value)
        if missing:
            raise MachineError(f"{node} does not report its {', '.join(missing)}")
        return facts(values)

    return Probe("facts", node, read)


def parse_values(output: str) -> dict[str, str]:
    """Return the `name=value` lines of a machine as a mapping."""
    return dict(line.split("=", 1) for line in output.splitlines())


def facts(values: Mapping[str, str]) -> dict[str, Json]:
    """Return facts from these values: Go's names, versions as in a Node, figures as numbers."""
    processor = values["processor"]
    return {
        **{name: values[name] for name in _UNCHANGED},
        "os": values["os"].lower(),
        "architecture": _ARCHITECTURES.get(processor, processor),
        "runtime": values["runtime"].partition("~")[0],
        "kubelet": values["kubelet"].removeprefix("Kubernetes "),
        "addresses": values["addresses"].split(),
        "cpus": int(values["cpus"]),
        "memory": int(values["memory_kib"]) * _UNIT_BYTES,
    }


_NOT_YET = ("UNKNOWN", "CREATED")
"""States of a task before its process runs."""


@with_effect("reads")
def task_of(node: str, container: str) -> Probe:
    """Return a probe of a container's state in containerd (namespace `k8s.io`), such as `RUNNING`.

    It waits until the container has started. It needs the feature `real-pods`.
    """

    def read_state(lab: LabHandle) -> str:
        for line in output_of(lab, node, ["ctr", "-n", "k8s.io", "task", "ls"]).splitlines():
            words = line.split()
            if words[:1] == [container] and words[-1] not in _NOT_YET:
                return words[-1]
        raise MachineError(f"{node}: no task of {container}")

    def read(lab: LabHandle) -> str:
        return retry_on(lambda: read_state(lab), MachineError, timeout_s=_UP_TIMEOUT_S, period_s=0.5)

    return Probe(f"task of {container}", node, read)


SWAP_LIMIT = "memory.swap.max"


@with_effect("reads")
def cgroup_file(pod: Pod, name: str, container: str = "") -> Probe:
    """Return a probe of a cgroup (v2) file of a pod's container, by default its first one.

    It needs the feature `real-pods`.
    """

    def read(lab: LabHandle) -> str:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
        statuses = api_pod["status"].get("containerStatuses") or ()
        fitting = [status for status in statuses if container in ("", status["name"])]
        id_ = str(fitting[0].get("containerID", "")).rpartition("/")[2] if fitting else ""
        if not id_:
            raise MachineError(
                f"{pod.node}: {container or 'no container'} of {pod.name} has not started; see its events"
            )
        scope = f"cri-containerd-{id_}.scope"
        find = ["find", "/sys/fs/cgroup", "-path", f"*/{scope}/{name}", "-exec", "cat", "{}", ";"]
        content = output_of(lab, pod.node, find).strip()
        if not content:
            raise MachineError(f"{pod.node}: no {name} in a cgroup of {pod.name}")
        return content

    return Probe(f"{container} {name}" if container else name, pod.name, read)


@with_effect("reads")
def swap_limit(pod: Pod, container: str = "") -> Probe:
    """Return a probe of a container's swap limit in the kernel (bytes, or `max`), as of `cgroup_file`."""
    return cgroup_file(pod, SWAP_LIMIT, container)


@with_effect("reads")
def mounted(pod: Pod, volume: str) -> Probe:
    """Return a probe of a volume's mount in a pod: its file system type and options, one per line.

    It needs the feature `real-pods`.
    """

    def read(lab: LabHandle) -> str:
        uid = str(lab.cluster.api.get(pod_path(pod.namespace, pod.name))["metadata"]["uid"])
        mount = mount_of(output_of(lab, pod.node, ["cat", "/proc/mounts"]), uid, volume)
        if not mount:
            raise MachineError(f"{pod.node}: volume {volume} of {pod.name} is not mounted")
        return mount

    return Probe(f"mount of {volume}", pod.name, read)


def mount_of(mounts: str, uid: str, volume: str) -> str:
    """Return the last mount of a volume, from the text of /proc/mounts; empty if it is not mounted."""
    mount = ""
    for line in mounts.splitlines():
        _device, point, type_, options, *_ = line.split()
        if f"/pods/{uid}/volumes/" in point and point.endswith(f"/{volume}"):
            mount = "\n".join([type_, *options.split(",")])
    return mount


def disk_holders(pvc: str) -> Probe:
    """Return a probe of the running machines that have a PVC's disk attached; needs the feature `volumes`.

    The hypervisor reports them, not the CSI driver or the API.
    """
    argv = ["sh", DISKS, "holders", handle(pvc)]
    return Probe("holders of the disk", pvc, lambda lab: output_of(lab, ATTACHER, argv).split())


_VOLUMES = "/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~csi"
_CAT = f'for file in "$0"/*/mount/{WRITTEN}; do [ ! -e "$file" ] || cat "$file" || exit; done'


def acknowledged(pod: Pod) -> Probe:
    """Return a probe of the last number that a pod reported as synced to its volume; 0 if there is none."""
    argv = ["sh", "-c", f'cat {WITNESS_FOLDER}/"$0".*', pod.name]
    return Probe(
        "last number acknowledged", pod.name, lambda lab: acknowledged_in(output_of(lab, pod.node, argv))
    )


def last_written(pod: Pod, by: str) -> Probe:
    """Return a probe of the last number that was written to a pod's volume on node `by`; 0 if none."""
    return Probe(f"last number of {by}", pod.name, lambda lab: last_of(_written(lab, pod), by))


def writes(pod: Pod) -> Probe:
    """Return a probe of the numbers on a pod's volume: how many were `written`, and which are wrong.

    Wrong numbers are `lost`, `doubled` or `torn`.
    """
    return Probe(
        "what was written", pod.name, lambda lab: counts_in(_written(lab, pod), lab.fleet.node_names())
    )


def acknowledged_in(reports: str) -> int:
    """Return the highest number in the unordered files that a pod wrote in all boots."""
    lines = map(str.split, reports.splitlines())
    return max((int(words[2]) for words in lines if words[1:2] == [WROTE]), default=0)


def last_of(text: str, by: str) -> int:
    """Return the number of the last complete line that the node wrote."""
    numbers = [number for number, _node in _complete_lines(text, [by])]
    return numbers[-1] if numbers else 0


def counts_in(text: str, nodes: Collection[str]) -> Mapping[str, Json]:
    """Return how many lines are complete, and the missing, repeated and torn ones.

    A torn line is one without a known node or without an end.
    """
    numbers = Counter(number for number, _node in _complete_lines(text, nodes))
    return {
        "written": numbers.total(),
        "lost": [number for number in range(1, max(numbers, default=0)) if number not in numbers],
        "doubled": [number for number, times in sorted(numbers.items()) if times > 1],
        "torn": [line for line in text.splitlines(keepends=True) if not _line(line, nodes)],
    }


def _complete_lines(text: str, nodes: Collection[str]) -> Iterator[tuple[int, str]]:
    lines = (_line(line, nodes) for line in text.splitlines(keepends=True))
    return (line for line in lines if line)


def _line(line: str, nodes: Collection[str]) -> tuple[int, str] | None:
    """Return number and node of a line; None if it is incomplete or not of these nodes.

    A witness appends each line in one write, so a reader never sees a part of one.
    """
    number, _, node = line.removesuffix("\n").partition(" ")
    is_complete = line.endswith("\n") and number.isdecimal() and node in nodes
    return (int(number), node) if is_complete else None


def _written(lab: LabHandle, pod: Pod) -> str:
    """Return what is on the pod's volume; empty if there is no such pod, or no volume on its node."""
    try:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
    except ApiError as error:
        if error.status != 404:
            raise
        return ""
    return output_of(lab, pod.node, ["sh", "-c", _CAT, _VOLUMES.format(uid=api_pod["metadata"]["uid"])])


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Probe)  # noqa: PLE0605
