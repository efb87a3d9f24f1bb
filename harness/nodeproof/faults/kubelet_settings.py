"""Kubelet settings: a node's kubelet runs with other settings than the lab's."""

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
_TIMEOUT_S = 90.0
_BASE = "/etc/kubernetes/kubelet.json"
_BASE_OF_PROCESS_NODE = "/run/node/kubelet.json"
"""A process node's host starts the kubelet with a settings file beside this one, if there is any."""
_DROP_INS = "/etc/systemd/system/kubelet.service.d"
_FILE = re.compile(r"^nodeproof-([0-9a-f]{8})\.json$", re.MULTILINE)
_UNIT = """[Service]
ExecStart=
ExecStart=/usr/local/bin/kubelet --config=%s --kubeconfig=/etc/kubernetes/kubeconfig $KUBELET_FLAGS
"""
# Both files are synced before the kubelet starts: they must survive a power loss.
_PUT = """
umask 077 && mkdir -p "$(dirname "$1")" && cat >"$0" && printf '%s' "$2" >"$1" && sync "$0" "$1" || exit 1
"""
# The file that was written first is removed last: it shows that there is something to heal.
_REMOVE_DROP_IN = """
if [ ! -e "$0" ] && [ ! -e "$1" ]; then exit 0; fi
rm -f "$1" || exit 1
"""
_REMOVE_FILE = """
rm -f "$0"
"""
# The probes check that the kubelet serves again; this only gives an emulated machine time for it.
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
    """Restart of `node`'s kubelet with other KubeletConfiguration fields; healing restarts it without them.

    It survives a power cycle. The probes read `/configz`, where the kubelet serves its running configuration.
    """

    name: ClassVar[str] = "kubelet-settings"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    settings: Mapping[str, Json] = field(default_factory=dict)

    @property
    def harms(self) -> Sequence[str]:
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """The command that deletes both files, if any, and restarts the kubelet if they existed."""
        return ["sh", "-c", _REMOVE_DROP_IN + _RESTART + _REMOVE_FILE, self._file, self._drop_in]

    def to_json(self) -> Mapping[str, Json]:
        return {
            "fault": self.name,
            "id": self.id,
            "node": self.node,
            "settings": dict(self.settings),
        }

    def available(self, machine: Machine) -> str:
        """Require a kubelet with unchanged settings that has none of these values already.

        With a value that it already has, no probe could see that the fault is healed.
        """
        reason = self._unavailable(machine)
        if reason:
            return reason
        try:
            configuration = machine.kubelet_configuration()
        except MachineError:
            # It has just started and does not serve its configuration yet.
            return ""
        unchanged = [
            f"{name}: {value}"
            for name, value in self.settings.items()
            if _is_same(configuration.get(name), value)
        ]
        return f"its kubelet already has {', '.join(unchanged)}" if unchanged else ""

    def _unavailable(self, machine: Shell) -> str:
        if _is_process_node(machine):
            faults = kubelet_settings_on(machine)
            return f"its settings are changed already: {faults[0].id}" if faults else ""
        unit = machine.run(["systemctl", "is-active", "kubelet.service"], deadline_s=COMMAND_LIMIT_S)
        if unit.status != 0:
            return f"systemd runs no kubelet on {self.node}"
        others = machine.run(["sh", "-c", f"ls {_DROP_INS}/nodeproof-*.conf"], deadline_s=COMMAND_LIMIT_S)
        return f"its settings are changed already: {others.stdout.strip()}" if others.status == 0 else ""

    def inject(self, machine: Shell) -> None:
        """Write the merged configuration and restart the kubelet with it."""
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
        """Delete the files, if any, and restart the kubelet if they existed."""
        if not _is_process_node(machine):
            self._run(machine, self.undo)
            return
        # The renamed file has no effect any more, but still shows that there is something to heal.
        healing = f"{self._own_file}.healing"
        move = 'if [ -e "$0" ]; then mv "$0" "$1"; fi; [ ! -e "$1" ] || echo changed'
        if self._run(machine, ["sh", "-c", move, self._own_file, healing]).strip():
            machine.power("kubelet-off")
        machine.power("kubelet-on")
        self._run(machine, ["rm", "-f", healing])

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the kubelet reports every one of the settings."""
        configuration = machine.kubelet_configuration()
        return all(_is_same(configuration.get(name), value) for name, value in self.settings.items())

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the kubelet answers and reports none of the settings."""
        configuration = machine.kubelet_configuration()
        return not any(_is_same(configuration.get(name), value) for name, value in self.settings.items())

    @property
    def _file(self) -> str:
        return f"/etc/kubernetes/nodeproof-{self.id}.json"

    @property
    def _drop_in(self) -> str:
        return f"{_DROP_INS}/nodeproof-{self.id}.conf"

    @property
    def _own_file(self) -> str:
        """The settings file on a process node."""
        return f"/run/node/nodeproof-{self.id}.json"

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> str:
        completed = machine.run(argv, deadline_s=_TIMEOUT_S, stdin=stdin)
        if completed.status != 0:
            raise MachineError(f"{self.node}: kubelet settings: {completed.stderr.strip()}")
        return completed.stdout


def kubelet_settings_on(machine: Shell) -> list[KubeletSettings]:
    """Return the faults whose files are on a machine. Raises MachineError."""
    folder = str(PurePosixPath(_BASE_OF_PROCESS_NODE if _is_process_node(machine) else _BASE).parent)
    listed = machine.run(["sh", "-c", 'ls "$0" || :', folder], deadline_s=COMMAND_LIMIT_S).stdout
    return [KubeletSettings(fault_id, machine.name) for fault_id in _FILE.findall(listed)]


def _is_process_node(machine: Shell) -> bool:
    return machine.run(["test", "-e", _BASE_OF_PROCESS_NODE], deadline_s=COMMAND_LIMIT_S).status == 0


def _is_same(reported: Json, expected: Json) -> bool:
    """Return whether both are equal, or the same duration: a kubelet reports 90s as 1m30s."""
    if reported == expected:
        return True
    try:
        return duration_s(reported) == duration_s(expected)
    except ValueError:
        return False
