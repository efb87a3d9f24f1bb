"""Other file: a file of a node holds something else, or is there where it was not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nodeproof.faults.fault import COMMAND_LIMIT_S, Place
from nodeproof.machines.machine import Machine, MachineError, Shell

Json = Any
_PLACE = 'place=/run/node/other-files; [ -d /run/node ] || place=/var/lib/nodeproof/other-files; cd "$place"'
"""Where a process node, or a guest, keeps what was in the place of such files, over a cut of its power."""
_MAKE = """
place=/run/node/other-files; [ -d /run/node ] || place=/var/lib/nodeproof/other-files
umask 077 && mkdir -p "$place" && cd "$place" || exit 1
"""
_PART = 'part=$(dirname "$path")/.$(basename "$path").nodeproof-$0'
"""The file until it is whole: hidden, as whoever reads a folder may read all that is not."""
# The path is written down last, and healing begins with it: a copy that is not whole is never put back.
_INJECT = f"""{_MAKE}
path=$(realpath -m -- "$1") && folder=$(dirname "$path") && {_PART} || exit 1
if [ ! -e "$0.path" ]; then
    rm -f "$0.was" "$0.made"
    if [ -e "$path" ]; then cp -a "$path" "$0.was" || exit 1; fi
    made=
    while [ ! -d "$folder" ]; do made="$folder
$made" folder=$(dirname "$folder"); done
    printf '%s' "$made" >"$0.made" && printf '%s' "$path" >"$0.new" && sync . || exit 1
    mv "$0.new" "$0.path" || exit 1
fi
mkdir -p "$(dirname "$path")" && cat >"$part" || exit 1
if [ "$(wc -c <"$part")" -ne "$2" ]; then echo "its content came in part only" >&2; exit 1; fi
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
_IS_HELD = f"""
path=$(realpath -m -- "$1")
{_PLACE} 2>/dev/null || exit 1
for held in ./*.path; do [ "$(cat "$held" 2>/dev/null)" != "$path" ] || exit 0; done
exit 1
"""
_FOUND = re.compile(r"^([0-9a-f]{8})\.path$", re.MULTILINE)


@dataclass(frozen=True)
class OtherFile:
    """Puts `content` into the file at `path` of `node`; healing puts back what was there, or nothing.

    It outlives a cut of the power where the file does. Whoever reads the file is not told.
    """

    name: ClassVar[str] = "other-file"
    places: ClassVar[Sequence[Place]] = ("node",)
    ends_components: ClassVar[bool] = False
    id: str
    node: str
    path: str = ""
    content: str = ""

    @property
    def harms(self) -> Sequence[str]:
        """The target."""
        return (self.node,)

    @property
    def undo(self) -> Sequence[str]:
        """Put back what was there."""
        return ["sh", "-c", _HEAL, self.id]

    def to_json(self) -> Mapping[str, Json]:
        """The constructor's data."""
        told = {"path": self.path, "content": self.content}
        return {"fault": self.name, "id": self.id, "node": self.node, **told}

    def available(self, machine: Shell) -> str:
        """A path from the root, of a file or of nothing, that no other such fault holds."""
        if not self.path.startswith("/"):
            return f"{self.path!r} is no path from the root"
        held = machine.run(["sh", "-c", _IS_HELD, self.id, self.path], deadline_s=COMMAND_LIMIT_S)
        if held.status == 0:
            return f"{self.path} of {self.node} is another already"
        odd = machine.run(["sh", "-c", '[ ! -e "$0" ] || [ -f "$0" ]', self.path], deadline_s=COMMAND_LIMIT_S)
        return "" if odd.status == 0 else f"{self.path} of {self.node} is no file"

    def inject(self, machine: Shell) -> None:
        """Keep what is there, and write."""
        size_bytes = len(self.content.encode())
        self._run(machine, ["sh", "-c", _INJECT, self.id, self.path, str(size_bytes)], self.content)

    def heal(self, machine: Shell) -> None:
        """Put back what was there; nothing where nothing was kept."""
        self._run(machine, self.undo)

    def is_injected(self, machine: Machine) -> bool:
        """The file holds the content."""
        return self._held(machine) == self.content

    def is_healed(self, machine: Machine) -> bool:
        """The file does not, nothing is kept for it, and no part of it is left."""
        left = machine.run(["sh", "-c", _IS_LEFT, self.id, self.path], deadline_s=COMMAND_LIMIT_S)
        return left.status != 0 and self._held(machine) != self.content

    def _held(self, machine: Machine) -> str | None:
        done = machine.run(["cat", self.path], deadline_s=COMMAND_LIMIT_S)
        return done.stdout if done.status == 0 else None

    def _run(self, machine: Shell, argv: Sequence[str], stdin: str = "") -> None:
        done = machine.run(argv, deadline_s=COMMAND_LIMIT_S, stdin=stdin)
        if done.status != 0:
            raise MachineError(f"{self.node}: {self.path}: {done.stderr.strip()}")


def other_files_on(machine: Shell) -> list[OtherFile]:
    """The files that a machine keeps something for. Raises MachineError."""
    listed = machine.run(["sh", "-c", f"{_PLACE} && ls"], deadline_s=COMMAND_LIMIT_S).stdout
    return [OtherFile(found, machine.name) for found in _FOUND.findall(listed)]
