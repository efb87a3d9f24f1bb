"""Kubelet settings: one node's kubelet runs with other settings than the lab gave it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.duration import duration_s

Json = Any
_LIMIT_S = 90.0
_BASE = "/etc/kubernetes/kubelet.json"
_BASE_OF_PROCESS_NODE = "/run/node/kubelet.json"
"""Its host starts the kubelet with the file that lies beside it, if there is one."""
_DROP_INS = "/etc/systemd/system/kubelet.service.d"
_FILE = re.compile(r"^nodeproof-([0-9a-f]{8})\.json$", re.MULTILINE)
_UNIT = """[Service]
ExecStart=
ExecStart=/usr/local/bin/kubelet --config=%s --kubeconfig=/etc/kubernetes/kubeconfig $KUBELET_FLAGS
"""
# Both files reach the disk before the kubelet starts: they must outlive a cut of the power.
_PUT = """
umask 077 && mkdir -p "$(dirname "$1")" && cat >"$0" && printf '%s' "$2" >"$1" && sync "$0" "$1" || exit 1
"""
# What was written first goes last: while it is there, there is something to heal.
_DROP = """
if [ ! -e "$0" ] && [ ! -e "$1" ]; then exit 0; fi
rm -f "$1" || exit 1
"""
_DONE = """
rm -f "$0"
"""
# Whether it serves again the probes say: this only gives an emulated machine the time for it.
_RESTART = """
systemctl reset-failed kubelet.service
systemctl daemon-reload && systemctl restart kubelet.service || exit 1
waited=0
until ss -Hltn 'sport = :10250' | grep -q . || [ "$waited" -ge 200 ]; do
    waited=$((waited + 1)); sleep 0.2
done
"""


@dataclass(frozen=True)
class KubeletSettings:
    """Restarts `node`'s kubelet with other fields of KubeletConfiguration; healing restarts it without.

    It outlives a power cycle. What the probes look at is `/configz`, which the kubelet serves of itself.
    """

    name: ClassVar[str] = "kubelet-settings"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    settings: Mapping[str, Json] = field(default_factory=dict)

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Delete both files, there or not, and restart the kubelet where they were."""
        return ["sh", "-c", _DROP + _RESTART + _DONE, self._file, self._drop_in]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        return {
            "fault": self.name,
            "id": self.id,
            "node": self.node,
            "settings": dict(self.settings),
        }

    def available(self, machine: Machine) -> str:
        """A kubelet whose settings nobody has changed yet, and that has none of these by itself, as no probe
        could tell then that it is healed.
        """
        why = self._unavailable(machine)
        if why:
            return why
        try:
            told = machine.kubelet_configuration()
        except MachineError:
            # It started a moment ago, and says later what it runs with.
            return ""
        same = [f"{name}: {value}" for name, value in self.settings.items() if _same(told.get(name), value)]
        return f"its kubelet has {', '.join(same)} without it" if same else ""

    def _unavailable(self, machine: Shell) -> str:
        if _is_process_node(machine):
            held = kubelet_settings_on(machine)
            return f"its settings are changed already: {held[0].id}" if held else ""
        unit = machine.run(["systemctl", "is-active", "kubelet.service"], deadline_s=COMMAND_LIMIT_S)
        if unit.status != 0:
            return f"systemd runs no kubelet on {self.node}"
        others = machine.run(["sh", "-c", f"ls {_DROP_INS}/nodeproof-*.conf"], deadline_s=COMMAND_LIMIT_S)
        return f"its settings are changed already: {others.stdout.strip()}" if others.status == 0 else ""

    def inject(self, machine: Shell) -> None:
        """Write the merged configuration and let the kubelet start with it."""
        is_process = _is_process_node(machine)
        base = self._run(machine, ["cat", _BASE_OF_PROCESS_NODE if is_process else _BASE])
        merged = json.dumps({**json.loads(base), **self.settings})
        if is_process:
            self._run(machine, ["sh", "-c", 'cat >"$0.new" && mv "$0.new" "$0"', self._own_file], merged)
            machine.power("kubelet-off")
            machine.power("kubelet-on")
            return
        argv = ["sh", "-c", _PUT + _RESTART, self._file, self._drop_in, _UNIT % self._file]
        self._run(machine, argv, stdin=merged)

    def heal(self, machine: Shell) -> None:
        """Delete the files, there or not; the kubelet is restarted where they were."""
        if not _is_process_node(machine):
            self._run(machine, self.undo)
            return
        # Under its second name it is no setting any more, and there is still something to heal.
        healing = f"{self._own_file}.healing"
        move = 'if [ -e "$0" ]; then mv "$0" "$1"; fi; [ ! -e "$1" ] || echo changed'
        if self._run(machine, ["sh", "-c", move, self._own_file, healing]).strip():
            machine.power("kubelet-off")
        machine.power("kubelet-on")
        self._run(machine, ["rm", "-f", healing])

    def is_injected(self, machine: Machine) -> bool:
        """The kubelet says that it runs with every one of the settings."""
        told = machine.kubelet_configuration()
        return all(_same(told.get(name), value) for name, value in self.settings.items())

    def is_healed(self, machine: Machine) -> bool:
        """The kubelet answers, and runs with none of them."""
        told = machine.kubelet_configuration()
        return not any(_same(told.get(name), value) for name, value in self.settings.items())

    @property
    def _file(self) -> str:
        return f"/etc/kubernetes/nodeproof-{self.id}.json"

    @property
    def _drop_in(self) -> str:
        return f"{_DROP_INS}/nodeproof-{self.id}.conf"

    @property
    def _own_file(self) -> str:
        """On a process node."""
        return f"/run/node/nodeproof-{self.id}.json"

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        done = machine.run(argv, deadline_s=_LIMIT_S, stdin=stdin)
        if done.status != 0:
            raise MachineError(f"{self.node}: kubelet settings: {done.stderr.strip()}")
        return done.stdout


def kubelet_settings_on(machine: Shell) -> list[KubeletSettings]:
    """The settings whose files a machine has. Raises MachineError."""
    folder = str(PurePosixPath(_BASE_OF_PROCESS_NODE if _is_process_node(machine) else _BASE).parent)
    listed = machine.run(["sh", "-c", 'ls "$0" || :', folder], deadline_s=COMMAND_LIMIT_S).stdout
    return [KubeletSettings(found, machine.name) for found in _FILE.findall(listed)]


def _is_process_node(machine: Shell) -> bool:
    return machine.run(["test", "-e", _BASE_OF_PROCESS_NODE], deadline_s=COMMAND_LIMIT_S).status == 0


def _same(told: Json, value: Json) -> bool:
    """Whether both are the same, or the same duration: a kubelet tells 90s as 1m30s."""
    if told == value:
        return True
    try:
        return duration_s(told) == duration_s(value)
    except ValueError:
        return False
