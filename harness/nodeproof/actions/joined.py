"""Actions on a machine that the scenario joined; none is undone, as the machine leaves."""

from __future__ import annotations

import json
import time
from typing import Any

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.join import check_flags
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

Json = Any
_TIMEOUT_S = 60.0
_ENDS_S = 10
_STILL_RUNS = 124
"""The exit status of timeout(1) when it had to end a command."""
_SETTINGS, _HOME = "/run/nodeproof-tried.json", "/run/nodeproof-tried"
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
_FLAGS_OF_PROCESS_NODE = 'printf " %s" "$@" >>/run/node/kubelet.flags'
_RESTART_BY_SYSTEMD = """
[ "$#" -eq 0 ] || sed -i "/^KUBELET_FLAGS=/ s|\\$| $*|" /etc/default/kubelet || exit 1
systemctl restart kubelet.service
"""


def leave(name: str) -> Action[None]:
    """Power off a machine that the scenario joined, for good; its Node stays. The action raises Problem."""

    def do(doing: Doing) -> None:
        _joined(doing, name)
        doing.lab.fleet.leave(name)

    return Action(f"{name} leaves for good", do)


def start_again(name: str, *flags: str) -> Action[None]:
    """Restart the kubelet of a machine that the scenario joined, with additional flags.

    The action raises MachineError, Problem.
    """

    def do(doing: Doing) -> None:
        machine = _joined(doing, name)
        check_flags(flags)
        if "systemd" in doing.lab.features:
            _run(machine, "sh", "-c", _RESTART_BY_SYSTEMD, "sh", *flags)
            return
        if flags:
            _run(machine, "sh", "-c", _FLAGS_OF_PROCESS_NODE, "sh", *flags)
        machine.power("kubelet-off")
        machine.power("kubelet-on")

    return Action(f"restart the kubelet of {name} {' '.join(flags)}".strip(), do)


def run_on(name: str, *argv: str) -> Action[Observation]:
    """Run a command on a machine that the scenario joined and observe its `status`, `stdout` and `stderr`.

    The action raises MachineError, Problem.
    """

    def do(doing: Doing) -> Observation:
        machine, requested_t = _joined(doing, name), time.monotonic()
        completed = machine.run(list(argv), deadline_s=_TIMEOUT_S)
        value = {"status": completed.status, "stdout": completed.stdout, "stderr": completed.stderr}
        return doing.observed(" ".join(argv), name, value, requested_t)

    return Action(f"run {' '.join(argv)} on {name}", do)


def try_kubelet(name: str, *flags: str, on_cgroup_v1: bool = False, **kubelet: Json) -> Action[Observation]:
    """Start a second kubelet, of no cluster, on a machine that the scenario joined, and observe how it ends.

    `status` is its exit code, or None if it kept running and had to be stopped; `said` is its last output,
    without the stack of a panic. On a real machine a kubelet that keeps running cleans up existing pods.

    The action raises MachineError, Problem.

    Args:
        name: The machine's name.
        *flags: Flags of the kubelet.
        on_cgroup_v1: Whether it finds no cgroup v2, whatever the machine has.
        **kubelet: Fields of KubeletConfiguration.
    """

    def do(doing: Doing) -> Observation:
        machine, requested_t = _joined(doing, name), time.monotonic()
        is_guest = "systemd" in doing.lab.features
        program = "/usr/local/bin/kubelet" if is_guest else str(doing.lab.components.path("hollow-kubelet"))
        settings = json.dumps({**_ALONE, **kubelet})
        prefix = _CGROUP_V1 if on_cgroup_v1 else ()
        argv = [
            *prefix,
            program,
            f"--config={_SETTINGS}",
            f"--root-dir={_HOME}",
            f"--cert-dir={_HOME}",
            *flags,
        ]
        without_stack = "sed '/^goroutine /,$d'"
        script = (
            f'cat >{_SETTINGS} && timeout {_ENDS_S} "$@" 2>&1 | {without_stack} | tail -n 5; '
            'exit "${PIPESTATUS[0]}"'
        )
        completed = machine.run(["bash", "-c", script, "bash", *argv], deadline_s=_TIMEOUT_S, stdin=settings)
        status = None if completed.status == _STILL_RUNS else completed.status
        value = {"status": status, "said": completed.stdout}
        return doing.observed(f"end of a kubelet {' '.join([*flags, *kubelet])}", name, value, requested_t)

    return Action(f"try a kubelet {' '.join([*flags, *kubelet])} on {name}", do)


def _joined(doing: Doing, name: str) -> Machine:
    """Return a machine that the scenario joined. Raises Problem for every other machine."""
    if not doing.lab.safety.has_joined(name):
        raise Problem(f"{name} was not joined by the scenario", "scenario", "use a machine from join(...)")
    return doing.lab.fleet.machine(name)


def _run(machine: Machine, *argv: str) -> None:
    completed = machine.run(list(argv), deadline_s=_TIMEOUT_S)
    if completed.status != 0:
        raise MachineError(f"{machine.name}: {argv[0]}: {completed.stderr.strip()}")
