"""Nodes of a scenario: created by hand, joined while the lab runs, changed in the cloud; their services."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from nodeproof import proc
from nodeproof.actions.action import Action, ActionContext
from nodeproof.actions.api import send_request
from nodeproof.artifacts.components import ROLES
from nodeproof.cluster.api import Api
from nodeproof.cluster.published import total
from nodeproof.cluster.resources import NAMESPACE, node, pods
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.workloads import OWN_LABELS, pod_spec
from nodeproof.faults import Fault
from nodeproof.faults.cloud import Cloud, State, give_addresses, replace_answers
from nodeproof.labs.base.spec import DEFAULT_SHAPE, NodeSpec, Shape, check_node_name
from nodeproof.labs.client.handle import MANAGER
from nodeproof.machines.machine import Machine, checked
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.history import parse_time
from nodeproof.model.judgment import Observation, words_in
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.window import POD_GC_S, QUARANTINE_S
from nodeproof.waiting import wait_until

_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


def create_node(name: str, labels: Mapping[str, str] | None = None) -> Action[Observation]:
    """Create a Node without a kubelet; it is removed when the scenario ends."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}}
    return send_request("POST", "/api/v1/nodes", body)


def labels_of(key: str, value: str) -> Mapping[str, str]:
    """Return the label that `label_node` sets, for a nodeSelector or a pattern."""
    return {f"{OWN_LABELS}{key}": value}


def label_node(name: str, key: str, value: str) -> Action[None]:
    """Set a label of the scenario's own on a node, or change it; it is removed when the scenario ends."""
    body = {"metadata": {"labels": labels_of(key, value)}}

    def do(context: ActionContext) -> None:
        context.lab.cluster.api.patch(node_path(name), body)

    return Action(f"label {name} with {key}={value}", do)


def set_condition(name: str, type_: str, status: str) -> Action[Observation]:
    """Set a condition of a node, as its kubelet or another reporter would; a kubelet sets its own again."""
    conditions = [{"type": type_, "status": status, "reason": "Said", "message": "by nodeproof"}]
    return send_request("PATCH", f"{node_path(name)}/status", {"status": {"conditions": conditions}})


def keep_alive(name: str) -> Action[None]:
    """Report a Node without a kubelet as Ready, and renew its Lease every R until the recording ends.

    The action raises Problem if there is no recording.
    """

    def do(context: ActionContext) -> None:
        recording, api = context.recording, context.lab.cluster.api
        if recording is None:
            raise Problem("nothing is being recorded", "keep_alive", "use `with lab.record():` around it")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        send_request("POST", _LEASES, {**body, "spec": spec}).do(context)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "", **_times()}
        api.patch(f"{node_path(name)}/status", {"status": {"conditions": [ready]}})

        def renew() -> None:
            api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})

        recording.repeat(context.lab.configuration["R"], renew)

    return Action(f"keep {name} alive", do)


def _times() -> Mapping[str, str]:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"lastHeartbeatTime": now, "lastTransitionTime": now}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_FLAG = re.compile(r"--[A-Za-z0-9._:/,=@-]*")


def check_flags(flags: Sequence[str]) -> None:
    """Reject flags that a shell or a unit file would split. Raises Problem."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise Problem(f"invalid flag {flag!r}", "flags", "use --NAME=VALUE with plain characters")


def join(
    name: str,
    zone: str = "",
    *,
    node: str = "",
    flags: Sequence[str] = (),
    shape: Shape = DEFAULT_SHAPE,
    **kubelet: Json,
) -> Action[None]:
    """Boot a new machine and start its kubelet; the machine and its Node are removed after the scenario.

    If that fails, the next run or `nodeproof heal` removes them.

    Args:
        name: The machine's name.
        zone: By default the zone of the lab's first node.
        node: The name of its Node; by default the machine's.
        flags: Kubelet flags besides the lab's.
        shape: A shape of its own needs the feature `shapes`.
        **kubelet: Fields of KubeletConfiguration.

    Raises:
        Problem: By the action, if the machine cannot join.
    """

    def do(context: ActionContext) -> None:
        check_node_name(name)
        node_name = check_node_name(node or name)
        check_flags(flags)
        fleet = context.lab.fleet
        node_zone = zone or fleet.nodes()[0].zone
        if context.lab.zone not in ("", node_zone):
            raise Problem(f"{node_zone} is not the scenario's zone", "join(...)", f"use {context.lab.zone}")
        for new_name in {name, node_name}:
            if fleet.has(new_name):
                raise Problem(
                    f"a node named {new_name} already exists", f"lab {context.lab.name}", "use another name"
                )
        context.lab.safety.register_node(name, node_name)
        if context.recording is not None:
            options: Json = {"kubelet": kubelet, "flags": list(flags), "as": node_name}
            context.recording.append("machine", node=name, step="joining", **options)
        own: Json = {"kubelet": kubelet, "flags": tuple(flags), "node": node_name, "shape": shape}
        fleet.join(NodeSpec(name, fleet.free_slot(), node_zone, **own))

    return Action(f"{name} joins", do)


_TIMEOUT_S, _TRY_TIMEOUT_S = 60.0, 90.0
_STARTS_S, _RUNS_S = 40, 10
"""How long a tried kubelet may take until it has started, and how long it must run after that (s)."""
_STILL_RUNS, _UNDECIDED = 124, 125
"""Exit statuses of `_TRY`: the kubelet kept running; it could not be tried, or did not start in time."""
_SETTINGS, _HOME = "/run/nodeproof-tried.json", "/run/nodeproof-tried"
_TRY = f"""
starts_s=$1 runs_s=$2; shift 2
cat >{_SETTINGS} && : >{_HOME}.log || exit {_UNDECIDED}
timeout --kill-after=5 "$((starts_s + 2 * runs_s))" "$@" >>{_HOME}.log 2>&1 &
runs() {{ kill -0 $! 2>/dev/null; }}
started() {{ grep -q "Started kubelet" {_HOME}.log; }}
until started || ! runs || [ "$SECONDS" -ge "$starts_s" ]; do sleep 0.5; done
if started && runs; then timeout "$runs_s" tail --pid=$! -f /dev/null; fi
if runs; then
    started && status={_STILL_RUNS} || status={_UNDECIDED}
    kill $!
    wait $!
else
    wait $!
    status=$?
    # These are of timeout(1): it ended the kubelet, or could not run it.
    case $status in 12[4-7] | 137) status={_UNDECIDED} ;; esac
fi
sed '/^goroutine /,$d' {_HOME}.log | tail -n 5
exit "$status"
"""
"""Tries a kubelet: the arguments are both times (s) and its command; its settings are on standard input.

It checks most settings before it logs that it started (RunKubelet in cmd/kubelet/app/server.go), which takes
long on a busy machine, and the others soon after that.
"""
_ALONE: Json = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "port": 10999,
    "healthzPort": 0,
    "failCgroupV1": False,
    "volumePluginDir": f"{_HOME}/volume-plugins",
    "podLogsDir": f"{_HOME}/pod-logs",
}
_CGROUP_V1 = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh")
"""A mount that looks like cgroup v1 to a kubelet: a tmpfs, which has the hierarchies below it.

Source: IsCgroup2UnifiedMode in github.com/opencontainers/cgroups.
"""
_RESTART = """
[ "$#" -eq 0 ] || sed -i "/^KUBELET_FLAGS=/ s|\\$| $*|" /etc/default/kubelet || exit 1
systemctl restart kubelet.service
"""


def leave(name: str) -> Action[None]:
    """Power off a machine that the scenario joined, for good; its Node stays. The action raises Problem."""

    def do(context: ActionContext) -> None:
        _joined(context, name)
        context.lab.fleet.leave(name)

    return Action(f"{name} leaves for good", do)


def restart_joined(name: str, *flags: str) -> Action[None]:
    """Restart the kubelet of a machine that the scenario joined, with additional flags.

    The action raises MachineError, Problem.
    """

    def do(context: ActionContext) -> None:
        machine = _joined(context, name)
        check_flags(flags)
        argv = ["sh", "-c", _RESTART, "sh", *flags]
        checked(machine.run(argv, timeout_s=_TIMEOUT_S), f"{name}: sh")

    return Action(f"restart the kubelet of {name} {' '.join(flags)}".strip(), do)


def run_on(name: str, *argv: str) -> Action[Observation]:
    """Run a command on a machine that the scenario joined and observe its `status`, `stdout` and `stderr`.

    The action raises MachineError, Problem.
    """

    def do(context: ActionContext) -> Observation:
        machine, requested_t = _joined(context, name), time.monotonic()
        completed = machine.run(list(argv), timeout_s=_TIMEOUT_S)
        return context.observed(" ".join(argv), name, asdict(completed), requested_t)

    return Action(f"run {' '.join(argv)} on {name}", do)


def try_kubelet(name: str, *flags: str, on_cgroup_v1: bool = False, **kubelet: Json) -> Action[Observation]:
    """Start a second kubelet, of no cluster, on a machine that the scenario joined, and observe how it ends.

    `status` is its exit code, or None if it started, kept running and had to be stopped; `output` is its last
    output, without the stack of a panic. On a real machine a kubelet that keeps running cleans up existing
    pods.

    The action raises MachineError, Problem.

    Args:
        name: The machine's name.
        *flags: Flags of the kubelet.
        on_cgroup_v1: Whether it finds no cgroup v2, whatever the machine has.
        **kubelet: Fields of KubeletConfiguration.
    """

    def do(context: ActionContext) -> Observation:
        machine, requested_t = _joined(context, name), time.monotonic()
        (own,) = (node.kubelet for node in context.lab.fleet.nodes() if node.name == name)
        program = own if context.lab.kind.is_hollow else "/usr/local/bin/kubelet"
        settings = json.dumps({**_ALONE, **kubelet})
        prefix = _CGROUP_V1 if on_cgroup_v1 else ()
        argv = [
            *("bash", "-c", _TRY, "bash", str(_STARTS_S), str(_RUNS_S)),
            *prefix,
            program,
            f"--config={_SETTINGS}",
            f"--root-dir={_HOME}",
            f"--cert-dir={_HOME}",
            *flags,
        ]
        completed = machine.run(argv, timeout_s=_TRY_TIMEOUT_S, stdin=settings)
        if completed.status == _UNDECIDED:
            what = f"a kubelet could not be tried, or neither started nor ended within {_STARTS_S} s"
            output = completed.stdout + completed.stderr
            raise Problem(what, name, "run the scenario again on an idle host", output)
        status = None if completed.status == _STILL_RUNS else completed.status
        value = {"status": status, "output": completed.stdout}
        return context.observed(f"end of a kubelet {' '.join([*flags, *kubelet])}", name, value, requested_t)

    return Action(f"try a kubelet {' '.join([*flags, *kubelet])} on {name}", do)


def _joined(context: ActionContext, name: str) -> Machine:
    """Return a machine that the scenario joined. Raises Problem for every other machine."""
    if not context.lab.safety.has_joined(name):
        raise Problem(
            f"the scenario did not join {name}", f"lab {context.lab.name}", "use a machine from join(...)"
        )
    return context.lab.fleet.machine(name)


def set_cloud_answers(answers: Mapping[str, State]) -> Action[None]:
    """Replace all answers of the cloud (the fault `cloud`) about nodes' machines.

    Raises:
        Problem: By the action, if the fault does not have the labels of a lost node, which it could not
            restore.
    """
    lost = tuple(node for node, state in answers.items() if state != "exists")

    def do(context: ActionContext) -> None:
        _refuse_unlabelled(lost, context.lab.safety.injector.active.values())
        replace_answers(context.lab.fleet.machine(CLOUD), answers)

    description = ", ".join(f"{node}: {state}" for node, state in answers.items()) or "that all exist"
    return Action(f"the cloud says {description}", do, affected_nodes=lost)


def set_cloud_addresses(node: str, **addresses: Sequence[str]) -> Action[None]:
    """Set a node's addresses in the cloud (the fault `cloud` with `initialises_nodes`), and clear all others.

    The addresses are given by type, such as `ExternalIP=["10.78.1.9"]`.
    """
    entries = [{"type": kind, "address": address} for kind, values in addresses.items() for address in values]
    description = ", ".join(f"{entry['type']} {entry['address']}" for entry in entries)

    def do(context: ActionContext) -> None:
        give_addresses(context.lab.fleet.machine(CLOUD), {node: entries})

    return Action(f"the cloud gives {node} {description or 'no address'}", do)


def _refuse_unlabelled(lost: Sequence[str], active: Iterable[Fault]) -> None:
    clouds = [fault for fault in active if isinstance(fault, Cloud)]
    unlabelled = [node for node in lost if clouds and not clouds[0].labels.get(node)]
    if unlabelled:
        raise Problem(
            f"labels of {', '.join(unlabelled)} are missing",
            "set_cloud_answers(...)",
            "pass them to cloud(..., labels)",
        )


_PASSES_S, _FRACTION_S = 10.0, 1.0
"""Allowance for two passes with a late cache on a busy host, and for API times in whole seconds."""
OVER_S = QUARANTINE_S + POD_GC_S + _PASSES_S + _FRACTION_S
"""Age (s) of a Node at which the quarantine of an earlier Node of the same name has surely expired.

The collector may put the name into quarantine just before the Node is created. The first pass after the
quarantine, at most gcCheckPeriod later, removes it.
"""
_QUARANTINE_TIMEOUT_S, _PERIOD_S = OVER_S + 30.0, 1.0


def wait_podgc_quarantine(*nodes: str) -> Action[None]:
    """Wait until the pod garbage collector has no quarantine of an earlier Node of these names, up to 71 s.

    It returns at once if no Node was ever in quarantine, or if the Nodes are old enough. Use it before a
    scenario deletes a Node and measures from that: the rest of a quarantine shortens the next one.

    Each pass puts every missing Node into quarantine, even one whose pods it removes in that pass. A Node
    that is created again stays in quarantine until that expires (pkg/controller/podgc/gc_controller.go:
    gcOrphaned). If it is deleted before, its pods are removed when the older quarantine expires: too early.

    Raises:
        ApiError: By the action.
        Problem: By the action, if a Node is created again and again.
    """

    def do(context: ActionContext) -> None:
        api = context.lab.cluster.api
        if begun(api) == 0 or wait_until(lambda: _are_old(api, nodes), _QUARANTINE_TIMEOUT_S, _PERIOD_S):
            return
        message = (
            f"after {_QUARANTINE_TIMEOUT_S:g} s, a Node of {', '.join(nodes)} is younger than {OVER_S:g} s"
        )
        next_step = "something recreates it: look for its `create` requests in the lab's audit log"
        raise Problem(message, f"lab {context.lab.name}", next_step)

    return Action(f"wait until no quarantine of an earlier {' or '.join(nodes)} is left", do)


def begun(api: Api) -> float | None:
    """Return how often the running collector put a Node into quarantine; None if there is no such metric.

    The work queue counts each quarantine (AddAfter) as a retry, from the start of the process.

    Raises:
        ApiError: The metrics cannot be read.
    """
    text = api.text_at(f"{MANAGER}/metrics")
    return total(text, "workqueue_retries_total", {"name": "orphaned_pods_nodes"})


def _are_old(api: Api, names: tuple[str, ...]) -> bool:
    """Return whether these Nodes are old enough, by the API server's own clock. Raises ApiError."""
    # The object of a dry run has the current time.
    now = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    return all(_created_t(now) - _created_t(api.get(node(name))) >= OVER_S for name in names)


def _created_t(document: Json) -> float:
    return parse_time(document["metadata"]["creationTimestamp"])


# Restarts of a node's services, and the exit of a component whose flags may be invalid


_UNIT_TIMEOUT_S = 30.0


def restart_unit(node: str, unit: str) -> Action[None]:
    """Restart a unit of a target by systemd, such as `dbus.service`; needs the feature `systemd`.

    The action raises MachineError.
    """
    return Action(
        f"restart {unit} of {node}", lambda context: restart(context, node, unit), affected_nodes=(node,)
    )


def restart(context: ActionContext, node: str, unit: str) -> None:
    """Restart a unit of a node. Raises MachineError."""
    argv = ["systemctl", "restart", unit]
    checked(context.lab.fleet.machine(node).run(argv, timeout_s=_UNIT_TIMEOUT_S), f"{node}: {unit}")


def restart_kubelet(node: str) -> Action[None]:
    """Restart a target's kubelet by systemd, without waiting for its health; needs the feature `systemd`."""

    def do(context: ActionContext) -> None:
        # The clock dates the kubelet's messages. The step comes first, so that its effects follow it.
        context.keep_clock(node)
        if context.recording is not None:
            context.recording.append("machine", node=node, step="kubelet-restarted")
        restart(context, node, "kubelet.service")

    return Action(f"restart the kubelet of {node}", do, affected_nodes=(node,))


def try_flags(component: str, *flags: str) -> Action[Observation]:
    """Start a component with flags and observe its end: `status` (its exit code), `stdout`, `stderr`.

    It also gets `--version`, so it prints the version and exits once it has accepted all flags. The action
    raises Problem for an unknown component.
    """

    def do(context: ActionContext) -> Observation:
        if component not in ROLES:
            raise Problem(f"unknown component {component!r}", "try_flags", f"use one of {', '.join(ROLES)}")
        requested_t = time.monotonic()
        argv = [str(context.lab.components.path(component)), *flags, "--version"]
        completed = proc.run(argv, timeout_s=_UNIT_TIMEOUT_S, check=False)
        what = f"exit of {component} {' '.join(flags)}"
        return context.observed(what, component, asdict(completed), requested_t)

    return Action(f"start {component} {' '.join(flags)}", do)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
