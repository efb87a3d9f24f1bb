"""An interactive shell on a node: the ordinary ssh client, connected through the lab's supervisor."""

from __future__ import annotations

import os
import sys

from nodeproof import proc
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.ssh import SSH_PORT

_SHELL = "command -v bash >/dev/null && exec bash -l; exec sh -l"
"""The login shell of a process node's root is the fastest for commands, not the best for people."""


def interactive(lab: Lab, node: str) -> int:
    """Open a shell on a node in this terminal and return ssh's exit status.

    ssh connects through a ProxyCommand inside the lab. Raises Problem if the lab has no such node.
    """
    lab.fleet.machine(node)
    address = next(entry.control_address for entry in lab.fleet.nodes() if entry.name == node)
    known_hosts = lab.dir / "pki" / f"{node}.known_hosts"
    known_hosts.write_text(f"{node} {(lab.dir / 'pki' / f'{node}.hostkey').read_text().strip()}\n")
    relay = f"{sys.executable} -P -m nodeproof.labs.client.relay {lab.dir / 's'} {address} {SSH_PORT}"
    options = {
        "ProxyCommand": relay,
        "HostKeyAlias": node,
        "UserKnownHostsFile": str(known_hosts),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    terminal = ["-t"] if sys.stdin.isatty() else []
    key = str(lab.dir / "pki" / "ssh")
    return proc.foreground(["ssh", "-F", os.devnull, "-i", key, *flags, *terminal, f"root@{address}", _SHELL])
