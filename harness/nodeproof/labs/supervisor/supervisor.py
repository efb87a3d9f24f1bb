"""The root process that owns a lab: its folder, lock and socket, and the lab's init as its child.

`python -m nodeproof.labs.supervisor.supervisor SPEC` holds the lab's flock, creates the socket, starts the
init in new namespaces, and removes every trace once the init has ended, however it ended.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sys

from nodeproof import locks, proc
from nodeproof.labs.base import autogroup
from nodeproof.labs.base.spec import NAMESPACES, RUNTIME_ROOT, LabSpec

_LOCK_TIMEOUT_S = 10.0
"""Longer than a process checks whether the lock of a new lab is held."""


def main() -> None:
    """Own one lab from its first file to its last."""
    spec = LabSpec.from_json(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(1))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    autogroup.set_nice(spec.harness_nice + autogroup.STARTING)
    lock, log, listener = _make_folder(spec)
    try:
        argv = ["unshare", *NAMESPACES, "--", sys.executable, "-P", "-B", "-m"]
        life, _write_end = os.pipe()
        passed = [listener.fileno(), life]
        init = ["nodeproof.labs.supervisor.init", spec.to_json(), *map(str, passed)]
        child = proc.start([*argv, *init], log=log, pass_fds=passed)
        listener.close()
        signal.signal(signal.SIGTERM, lambda _number, _frame: child.kill())
        child.wait()
    finally:
        for folder in (spec.dir, *spec.unfinished_snapshots()):
            shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        with contextlib.suppress(OSError):
            RUNTIME_ROOT.rmdir()


def _make_folder(spec: LabSpec) -> tuple[int, int, socket.socket]:
    """Create the lab's folder, take its lock, open the init's log and listen on its socket.

    The lock shows that the lab is alive. The owner gets the folder last: until then no other user can put a
    link where root writes. The folder gets its name while the lock is held, so that no sweep finds it
    unlocked.
    """
    unnamed = RUNTIME_ROOT / f".{spec.lab}"
    RUNTIME_ROOT.mkdir(exist_ok=True)
    RUNTIME_ROOT.chmod(0o755)
    for folder in (unnamed, unnamed / "pki"):
        folder.mkdir(mode=0o700)
    descriptor = locks.open_file(unnamed / "lock")
    locks.lock(descriptor, unnamed / "lock", _LOCK_TIMEOUT_S)
    (unnamed / "spec.json").write_text(spec.to_json())
    log = os.open(unnamed / "init.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(unnamed / "s"))
    (unnamed / "s").chmod(0o600)
    listener.listen(64)
    spec.give_to_owner([*unnamed.iterdir(), unnamed])
    unnamed.rename(spec.dir)
    return descriptor, log, listener


if __name__ == "__main__":
    main()
