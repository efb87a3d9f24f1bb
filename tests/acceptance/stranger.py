"""A lab that looks like somebody's own cluster: its nodes have timers, and it shows its flags as k3s does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from nodeproof.cluster.resources import node
from nodeproof.labs.base.profiles import FAST
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import checked

_ARGUMENTS = "k3s.io/node-args"
_TIMEOUT_S = 10.0
UNITS = "/run/test-units"
# A process node has no systemd: its timers are sessions, each with a file that has its process id.
SYSTEMD_RUN = f"""#!/bin/sh
mkdir -p {UNITS}
case $* in *--version) exit 0 ;; esac
while [ "$1" != -- ]; do
    case $1 in --unit=*) unit={UNITS}/${{1#*=}} ;; --on-active=*) after=${{1#*=}} ;; esac
    shift
done
shift
setsid sh -c 'echo $$ >"$0"; sleep "$1"; shift; until "$@"; do sleep 3; done; rm -f "$0"' \\
    "$unit" "${{after%s}}" "$@" </dev/null >/dev/null 2>&1 &
until [ -s "$unit" ]; do sleep 0.05; done
"""
SYSTEMCTL = f"""#!/bin/sh
for last; do :; done
case $* in
    list-units*nodeproof-heal-*)
        cd {UNITS} 2>/dev/null || exit 0
        for unit in $last; do [ ! -e "$unit" ] || echo "$unit loaded"; done ;;
    stop*nodeproof-heal-*)
        shift
        for unit; do kill -- "-$(cat "{UNITS}/$unit")"; rm -f "{UNITS}/$unit"; done ;;
    *) exec /run/node/bin/systemctl.node "$@" ;;
esac
"""
_INSTALL = """
cd /run/node/bin && mkdir -p /run/systemd/system && mv systemctl systemctl.node || exit 1
printf %s "$0" >systemd-run && printf %s "$1" >systemctl && chmod 755 systemd-run systemctl
"""
_REMOVE = """
cd /run/node/bin && mv systemctl.node systemctl && rm -rf systemd-run /run/systemd
"""


_OLDER = """#!/bin/sh
case $* in *--expand-environment*) echo "systemd-run: unrecognized option" >&2; exit 1 ;; esac
exec /run/node/bin/systemd-run.new "$@"
"""
_AGE = """
cd /run/node/bin && mv systemd-run systemd-run.new || exit 1
printf %s "$0" >systemd-run && chmod 755 systemd-run
"""
_RENEW = "cd /run/node/bin && mv systemd-run.new systemd-run"


@contextmanager
def older_systemd_on(lab: LabHandle, name: str) -> Iterator[None]:
    """Give a node the options of systemd 253 until the context ends."""
    _run(lab, name, _AGE, _OLDER)
    try:
        yield
    finally:
        _run(lab, name, _RENEW)


@contextmanager
def owned_by_a_stranger(lab: LabHandle) -> Iterator[None]:
    """Give the nodes timers, and let a Node show the flags of its control plane, until the context ends."""
    names = lab.fleet.node_names()
    for name in names:
        _run(lab, name, _INSTALL, SYSTEMD_RUN, SYSTEMCTL)
    flags = {"kube-controller-manager": FAST.controller_manager, "kube-apiserver": FAST.api_server}
    arguments = [
        f"--{component}-arg={flag}={value}" for component, of in flags.items() for flag, value in of.items()
    ]
    _annotate(lab, names[0], json.dumps(["server", *arguments]))
    try:
        yield
    finally:
        _annotate(lab, names[0], None)
        for name in names:
            _run(lab, name, _REMOVE)


def timers_on(lab: LabHandle, name: str) -> list[str]:
    """Return the dead-man's timers that are armed on a node."""
    return _run(lab, name, f"ls {UNITS} 2>/dev/null || :").split()


def _annotate(lab: LabHandle, name: str, value: str | None) -> None:
    lab.cluster.api.patch(node(name), {"metadata": {"annotations": {_ARGUMENTS: value}}})


def _run(lab: LabHandle, name: str, script: str, *arguments: str) -> str:
    completed = lab.fleet.machine(name).run(["sh", "-c", script, *arguments], timeout_s=_TIMEOUT_S)
    return checked(completed, name)
