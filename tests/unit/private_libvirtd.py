"""A libvirtd of its own with libvirt's test driver: it runs no machine, and is no service of this host."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.waiting import eventually

PROGRAMS = ("libvirtd", "setpriv", "virsh")
DOMAIN = "test"
"""The domain of `test:///default`, which is on."""
_NOBODY, _LIVES_S, _STARTS_S, _ENDS_S = 65534, 120, 20.0, 10.0


@contextmanager
def private_libvirtd() -> Iterator[str]:
    """Serve libvirt's test driver in a session of a user without rights; yield the URI."""
    with tempfile.TemporaryDirectory(prefix="libvirtd-") as folder:
        user = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
        if os.getuid() == 0:
            shutil.chown(folder, _NOBODY, _NOBODY)
        home = dict.fromkeys(("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), folder)
        daemon = subprocess.Popen(
            [*(user if os.getuid() == 0 else []), "timeout", str(_LIVES_S), "libvirtd"],
            env={**os.environ, **home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        socket = Path(folder) / "libvirt" / "libvirt-sock"
        uri = f"test+unix:///default?socket={socket}"
        try:
            assert eventually(socket.exists, _STARTS_S)
            # The domain is reset once nobody is connected.
            with subprocess.Popen(["virsh", "--connect", uri], stdin=subprocess.PIPE) as client:
                yield uri
                client.communicate(b"quit\n", timeout=_ENDS_S)
        finally:
            daemon.terminate()
            daemon.wait(timeout=_ENDS_S)
