"""Other settings, versions or files: of a component of the control plane, of a kubelet, of a node."""

from __future__ import annotations

import json
import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import ClassVar

from nodeproof.faults.fault import (
    COMMAND_TIMEOUT_S,
    Fault,
    answer_of,
    has_booted,
    ids_in,
    output_of,
    succeeds,
)
from nodeproof.machines.machine import Machine, MachineError, Shell
from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s

_PLACE = 'place=/run/node/other-files; [ -d /run/node ] || place=/var/lib/nodeproof/other-files; cd "$place"'
"""The folder for originals of such files on a process node or a guest; it survives a power loss."""
_MAKE = """
place=/run/node/other-files; [ -d /run/node ] || place=/var/lib/nodeproof/other-files
umask 077 && mkdir -p "$place" && cd "$place" || exit 1
"""
_PART = 'part=$(dirname "$path")/.$(basename "$path").nodeproof-$0'
"""The incomplete file: hidden, as a reader of the folder may read every file that is not."""
# The path is written last, and healing starts from it: an incomplete copy is never restored.
_INJECT = f"""{_MAKE}
path=$(realpath -m -- "$1") && folder=$(dirname "$path") && {_PART} || exit 1
if [ ! -e "$0.path" ]; then
    rm -f "$0.was" "$0.made"
    if [ -e "$path" ]; then cp -a "$path" "$0.was" || exit 1; fi
    folders=
    while [ ! -d "$folder" ]; do folders="$folder
$folders" folder=$(dirname "$folder"); done
    printf '%s' "$folders" >"$0.made" && printf '%s' "$path" >"$0.new" && sync . || exit 1
    mv "$0.new" "$0.path" || exit 1
fi
mkdir -p "$(dirname "$path")" && cat >"$part" || exit 1
if [ "$(wc -c <"$part")" -ne "$2" ]; then echo "its content is incomplete" >&2; exit 1; fi
mv "$part" "$path" && sync "$path"
"""
_HEAL = f"""
{_PLACE} 2>/dev/null || exit 0
[ -e "$0.path" ] || {{ rm -f "$0.new" "$0.was" "$0.made"; exit 0; }}
path=$(cat "$0.path") && {_PART} || exit 1
if [ -e "$0.was" ]; then
    cp -a "$0.was" "$part" && mv "$part" "$path" || exit 1
else
    rm -f "$part" "$path" || exit 1
    tac "$0.made" | xargs -r -d '\\n' rmdir --ignore-fail-on-non-empty 2>/dev/null
fi
rm -f "$0.path" && rm -f "$0.was" "$0.made"
"""
_IS_LEFT = f"""
path=$(realpath -m -- "$1"); {_PART}
[ -e "$part" ] || {{ {_PLACE} && [ -e "$0.path" ]; }}
"""
_IS_REPLACED = f"""
path=$(realpath -m -- "$1")
{_PLACE} 2>/dev/null || exit 1
for file in ./*.path; do [ "$(cat "$file" 2>/dev/null)" != "$path" ] || exit 0; done
exit 1
"""


@dataclass(frozen=True)
class ReplaceFile(Fault):
    """Other `content` in the file at `path` of `node`; healing restores the original, or removes the file.

    It survives a power loss where the file does. Readers of the file are not notified.
    """

    name = "other-file"
    path: str
    content: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[ReplaceFile]:
        listed = output_of(machine, "sh", "-c", f"{_PLACE} && ls")
        return [cls(machine.name, "", "", id=fault_id) for fault_id in ids_in(listed, r"ID\.path$")]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that restores the original; it does nothing if none was stored."""
        return ["sh", "-c", _HEAL, self.id]

    def available(self, machine: Shell) -> str:
        """Require an absolute path of a file, or of nothing, that no other such fault replaced."""
        if not self.path.startswith("/"):
            return f"{self.path!r} is not an absolute path"
        if succeeds(machine, "sh", "-c", _IS_REPLACED, self.id, self.path):
            return f"{self.path} of {self.node} is replaced already"
        is_file = succeeds(machine, "sh", "-c", '[ ! -e "$0" ] || [ -f "$0" ]', self.path)
        return "" if is_file else f"{self.path} of {self.node} is not a file"

    def inject(self, machine: Shell) -> None:
        """Store the original and write the content."""
        size_bytes = len(self.content.encode())
        self.run(machine, ["sh", "-c", _INJECT, self.id, self.path, str(size_bytes)], self.content)

    def is_injected(self, machine: Machine) -> bool:
        completed = answer_of(machine, "cat", self.path)
        return completed.status == 0 and completed.stdout == self.content

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the file has other content, and neither an original nor a partial file is left."""
        is_left = succeeds(machine, "sh", "-c", _IS_LEFT, self.id, self.path)
        return not is_left and not self.is_injected(machine)


_WRITE = 'cat >"$0.new" && mv "$0.new" "$0"'
_COMPONENT_FILE = re.compile(r"^\./([a-z0-9-]+)/nodeproof-([0-9a-f]{8})\.[a-z]+$", re.MULTILINE)
SETTINGS_FILE = "/etc/kubernetes/kubelet.json"
_DROP_INS = "/etc/systemd/system/kubelet.service.d"
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
class Restart(Fault):
    """Restart of the component `node`, at once, with a file that changes its start; healing removes the file.

    The process gets no grace period. The component must be declared: `needs(components=...)`.
    """

    places = ("component",)
    suffix: ClassVar[str]
    """Of the file, by which the lab knows what it changes (`nodeproof.labs.base.control_plane.Services`)."""

    @property
    @abstractmethod
    def content(self) -> str:
        """The content of the file."""

    @classmethod
    def files_on(cls, machine: Shell) -> Sequence[tuple[str, str]]:
        """Return component and fault id of each file of such a fault. Raises MachineError."""
        listed = output_of(machine, "find", ".", "-name", f"nodeproof-*.{cls.suffix}")
        return _COMPONENT_FILE.findall(listed)

    @property
    def affected_nodes(self) -> Sequence[str]:
        return ()

    def available(self, machine: Shell) -> str:
        """Require a component whose start is unchanged."""
        completed = machine.run(["find", self.node, "-name", "nodeproof-*"], timeout_s=COMMAND_TIMEOUT_S)
        if completed.status != 0:
            return f"the lab does not start {self.node}"
        changed = completed.stdout.strip()
        return f"its settings are changed already: {changed}" if changed else ""

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["sh", "-c", _WRITE, self._file], self.content)
        machine.power("off")
        machine.power("on")

    def heal(self, machine: Shell) -> None:
        """Delete the file, if any, and start the component if it existed or the component is off."""
        if succeeds(machine, "test", "-e", self._file):
            machine.power("off")
        self.run(machine, ["rm", "-f", self._file, f"{self._file}.new"])
        machine.power("on")

    @property
    def _file(self) -> str:
        return f"./{self.node}/nodeproof-{self.id}.{self.suffix}"

    def command_lines(self, machine: Machine) -> Sequence[Sequence[str]]:
        """Return executable and arguments of the process of each replica, as the kernel reports them."""
        read = ["sh", "-c", "tr '\\0' '\\n' </proc/\"$0\"/cmdline"]
        return [self.run(machine, [*read, pid]).splitlines() for pid in machine.boot_id().split()]


@dataclass(frozen=True)
class Settings(Restart):
    """Restart of the component `node` with other flags, at once; healing restarts it without them.

    The process gets no grace period. The component must be declared: `needs(components=...)`.
    """

    name = "settings"
    suffix = "json"
    flags: Mapping[str, str]

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Settings]:
        return [cls(component, {}, id=fault_id) for component, fault_id in cls.files_on(machine)]

    @property
    def content(self) -> str:
        return json.dumps(self.flags)

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the component is healthy and each process has every one of the flags."""
        return has_booted(machine) and all(self._has_flags(machine))

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the component is healthy and no process has one of the flags."""
        return has_booted(machine) and not any(self._has_flags(machine))

    def _has_flags(self, machine: Machine) -> list[bool]:
        """Return for each process and flag whether it has it."""
        options = [f"--{name}={setting}" for name, setting in self.flags.items()]
        return [option in line for line in self.command_lines(machine) for option in options]


@dataclass(frozen=True)
class KubeletSettings(Fault):
    """Restart of `node`'s kubelet with other settings; healing restarts it without them.

    The settings are fields of KubeletConfiguration. The fault survives a power cycle. The probes read
    `/configz`, where the kubelet serves its running configuration.
    """

    name = "kubelet-settings"
    timeout_s = 90.0
    settings: Mapping[str, Json]

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[KubeletSettings]:
        listed = output_of(machine, "sh", "-c", 'ls "$0" || :', str(PurePosixPath(SETTINGS_FILE).parent))
        return [cls(machine.name, {}, id=fault_id) for fault_id in ids_in(listed, r"nodeproof-ID\.json$")]

    @property
    def self_heal_command(self) -> Sequence[str]:
        """The command that deletes both files, if any, and restarts the kubelet if they existed."""
        return ["sh", "-c", _REMOVE_DROP_IN + _RESTART + _REMOVE_FILE, self._file, self._drop_in]

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
            f"{name}: {setting}"
            for name, setting in self.settings.items()
            if _is_same(configuration.get(name), setting)
        ]
        return f"its kubelet already has {', '.join(unchanged)}" if unchanged else ""

    def _unavailable(self, machine: Shell) -> str:
        if not succeeds(machine, "systemctl", "is-active", "kubelet.service"):
            return f"systemd runs no kubelet on {self.node}"
        others = output_of(machine, "sh", "-c", f"ls {_DROP_INS}/nodeproof-*.conf").strip()
        return f"its settings are changed already: {others}" if others else ""

    def inject(self, machine: Shell) -> None:
        """Write the merged configuration and restart the kubelet with it."""
        base = self.run(machine, ["cat", SETTINGS_FILE])
        merged = json.dumps({**json.loads(base), **self.settings})
        self.run(
            machine, ["sh", "-c", _PUT + _RESTART, self._file, self._drop_in, _UNIT % self._file], merged
        )

    def is_injected(self, machine: Machine) -> bool:
        return all(self._has_settings(machine))

    def is_healed(self, machine: Machine) -> bool:
        return not any(self._has_settings(machine))

    def _has_settings(self, machine: Machine) -> list[bool]:
        """Return for each setting whether the kubelet reports it."""
        configuration = machine.kubelet_configuration()
        return [_is_same(configuration.get(name), setting) for name, setting in self.settings.items()]

    @property
    def _file(self) -> str:
        return f"/etc/kubernetes/nodeproof-{self.id}.json"

    @property
    def _drop_in(self) -> str:
        return f"{_DROP_INS}/nodeproof-{self.id}.conf"


def _is_same(reported: Json, expected: Json) -> bool:
    """Return whether both are equal, or the same duration: a kubelet reports 90s as 1m30s."""
    if reported == expected:
        return True
    try:
        return duration_s(reported) == duration_s(expected)
    except ValueError:
        return False


@dataclass(frozen=True)
class Upgrade(Restart):
    """Restart of the component `node` with its executable of `version`; healing restarts it with the lab's.

    The lab has executables of `lab.upgrade_version` (`--upgrade-to`). Upgrade kube-apiserver first: no
    component may be newer (https://kubernetes.io/releases/version-skew-policy/#supported-component-upgrade-order).
    The process gets no grace period. The component must be declared: `needs(components=...)`.
    """

    name = "upgrade"
    suffix = "version"
    version: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Upgrade]:
        return [cls(component, "", id=fault_id) for component, fault_id in cls.files_on(machine)]

    @property
    def content(self) -> str:
        return self.version

    def available(self, machine: Shell) -> str:
        """Require an unchanged component of which the lab has an executable of the version."""
        reason = super().available(machine)
        if reason or succeeds(machine, "test", "-e", f"./versions/{self.version}/{self.node}"):
            return reason
        return f"the lab has no {self.node} {self.version}: use --upgrade-to"

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its executable is of the version."""
        return has_booted(machine) and self._running_versions(machine) == {self.version}

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its executable is of another version."""
        return has_booted(machine) and self.version not in self._running_versions(machine)

    def _running_versions(self, machine: Machine) -> Set[str]:
        """Return the versions that the executables of the component's processes print."""
        executables = {line[0] for line in self.command_lines(machine)}
        outputs = {self.run(machine, [executable, "--version"]) for executable in executables}
        return {output.strip().removeprefix("Kubernetes ") for output in outputs}
