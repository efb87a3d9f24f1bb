"""Replaced file: a file of a node has other content, or exists where there was none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nodeproof.faults.fault import Fault, answer_of, output_of, succeeds
from nodeproof.machines.machine import Machine, Shell

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
    made=
    while [ ! -d "$folder" ]; do made="$folder
$made" folder=$(dirname "$folder"); done
    printf '%s' "$made" >"$0.made" && printf '%s' "$path" >"$0.new" && sync . || exit 1
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
_PATH_FILE = re.compile(r"^([0-9a-f]{8})\.path$", re.MULTILINE)


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
        return [cls(machine.name, "", "", id=fault_id) for fault_id in _PATH_FILE.findall(listed)]

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
