"""What a scenario does to a machine that it let join: nothing of it is undone, as the machine leaves."""

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
_LIMIT_S = 60.0
_ENDS_S = 10
_STILL_RUNS = 124
"""What timeout(1) exits with when it had to end a command."""
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
"""By the file system that it finds there a kubelet tells the versions apart (IsCgroup2UnifiedMode in
github.com/opencontainers/cgroups); a host of cgroup v1 has a tmpfs, with its hierarchies below.
"""
_FLAGS_OF_PROCESS_NODE = 'printf " %s" "$@" >>/run/node/kubelet.flags'
_RESTART_BY_SYSTEMD = """
[ "$#" -eq 0 ] || sed -i "/^KUBELET_FLAGS=/ s|\\$| $*|" /etc/default/kubelet || exit 1
systemctl restart kubelet.service
"""


def leave(name: str) -> Action[None]:
    """Power a machine off for good that the scenario let join; its Node stays. The action raises Problem."""

    def do(doing: Doing) -> None:
        _joined(doing, name)
        doing.lab.fleet.leave(name)

    return Action(f"{name} leaves for good", do)


def start_again(name: str, *flags: str) -> Action[None]:
    """Restart the kubelet of a machine that the scenario let join, with these flags besides those it has.

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
    """Run a command on a machine that the scenario let join; `status`, `stdout` and `stderr` are observed.

    The action raises MachineError, Problem.
    """

    def do(doing: Doing) -> Observation:
        machine, asked_t = _joined(doing, name), time.monotonic()
        done = machine.run(list(argv), deadline_s=_LIMIT_S)
        value = {"status": done.status, "stdout": done.stdout, "stderr": done.stderr}
        return doing.observed(" ".join(argv), name, value, asked_t)

    return Action(f"run {' '.join(argv)} on {name}", do)


def try_kubelet(name: str, *flags: str, on_cgroup_v1: bool = False, **kubelet: Json) -> Action[Observation]:
    """Start another kubelet beside that of a machine that the scenario let join, of no cluster, with these
    flags and fields of KubeletConfiguration. How it ends is observed: `status`, its exit code, or None where
    it runs on and had to be ended, and what it `said` last, before the stack where it panics. On a real
    machine one that runs on tidies up the pods that are there. With `on_cgroup_v1` it finds no cgroup v2,
    whatever the machine has.

    The action raises MachineError, Problem.
    """

    def do(doing: Doing) -> Observation:
        machine, asked_t = _joined(doing, name), time.monotonic()
        is_guest = "systemd" in doing.lab.features
        program = "/usr/local/bin/kubelet" if is_guest else str(doing.lab.components.path("hollow-kubelet"))
        settings = json.dumps({**_ALONE, **kubelet})
        on = _CGROUP_V1 if on_cgroup_v1 else ()
        argv = [*on, program, f"--config={_SETTINGS}", f"--root-dir={_HOME}", f"--cert-dir={_HOME}", *flags]
        before_its_stack = "sed '/^goroutine /,$d'"
        script = (
            f'cat >{_SETTINGS} && timeout {_ENDS_S} "$@" 2>&1 | {before_its_stack} | tail -n 5; '
            'exit "${PIPESTATUS[0]}"'
        )
        done = machine.run(["bash", "-c", script, "bash", *argv], deadline_s=_LIMIT_S, stdin=settings)
        status = None if done.status == _STILL_RUNS else done.status
        value = {"status": status, "said": done.stdout}
        return doing.observed(f"end of a kubelet {' '.join([*flags, *kubelet])}", name, value, asked_t)

    return Action(f"try a kubelet {' '.join([*flags, *kubelet])} on {name}", do)


def _joined(doing: Doing, name: str) -> Machine:
    """A machine that is the scenario's own. Raises Problem for every other."""
    if not doing.lab.safety.has_joined(name):
        raise Problem(
            f"{name} was not let join by the scenario", "scenario", "do it to one that was: join(...)"
        )
    return doing.lab.fleet.machine(name)


def _run(machine: Machine, *argv: str) -> None:
    done = machine.run(list(argv), deadline_s=_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{machine.name}: {argv[0]}: {done.stderr.strip()}")
