"""Shell commands with a private libvirtd, which ends with the last command.

`python -m tests.vm.private_libvirt FOLDER`, as first process of namespaces of its own: runs what
`FOLDER/commands.json` lists, in its order until one fails, and writes their outputs to `FOLDER/outputs.json`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from nodeproof import proc
from nodeproof.labs.base.mounts import ETC, make_etc
from nodeproof.labs.base.processes import EventLog, Processes
from nodeproof.labs.kinds.libvirt.hypervisor import Hypervisor

_MOUNT_TIMEOUT_S, _COMMAND_TIMEOUT_S = 10.0, 900.0
_LAB = Path("/run/private-libvirt")


def main(folder: Path) -> None:
    """Start libvirtd, run the commands, and end."""
    _start_libvirt(folder)
    outputs: list[str] = []
    for command in json.loads((folder / "commands.json").read_text()):
        done = proc.run(["sh", "-c", command], timeout_s=_COMMAND_TIMEOUT_S, check=False)
        outputs.append(f"{done.stdout}{done.stderr}")
        (folder / "outputs.json").write_text(json.dumps(outputs))
        if done.status != 0:
            return


def _start_libvirt(folder: Path) -> None:
    for argv in (["ip", "link", "set", "lo", "up"], ["mount", "-t", "tmpfs", "private", "/run"]):
        proc.run(argv, timeout_s=_MOUNT_TIMEOUT_S)
    memory = _LAB / "mem"
    memory.mkdir(parents=True)
    proc.run(["mount", "-t", "tmpfs", "private", str(memory)], timeout_s=_MOUNT_TIMEOUT_S)
    for name in ("scratch", "logs"):
        (memory / name).mkdir()
    own = make_etc(memory / "etc", {"hosts": "127.0.0.1 localhost\n", "resolv.conf": ""})
    proc.run(["mount", "--bind", str(own), str(ETC)], timeout_s=_MOUNT_TIMEOUT_S)
    processes = Processes(folder, EventLog(folder / "events.jsonl"))
    Hypervisor(_LAB, memory, processes).start_daemons()


def reap_until_ends(pid: int) -> int:
    """Reap children like a first process: libvirtd takes an unreaped machine for a running one."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return os.waitstatus_to_exitcode(status) & 0xFF


if __name__ == "__main__":
    child = os.fork()
    if child == 0:
        main(Path(sys.argv[1]))
        sys.exit(0)
    os._exit(reap_until_ends(child))
