"""An interactive shell on a node: the ordinary ssh client, its connection made inside the lab."""

from __future__ import annotations

import os
import sys

from nodeproof import proc
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.ssh import SSH_PORT

_SHELL = "command -v bash >/dev/null && exec bash -l; exec sh -l"
"""A process node's root has the quickest shell for commands, which is none for people."""


def interactive(lab: Lab, node: str) -> int:
    """Give the terminal to ssh; its ProxyCommand carries the connection into the lab. Gives ssh's exit
    status.

    Raises Problem when the lab has no such node.
    """
    lab.fleet.machine(node)
    address = next(entry.control_address for entry in lab.fleet.nodes() if entry.name == node)
    known = lab.dir / "pki" / f"{node}.known_hosts"
    known.write_text(f"{node} {(lab.dir / 'pki' / f'{node}.hostkey').read_text().strip()}\n")
    relay = f"{sys.executable} -P -m nodeproof.labs.client.relay {lab.dir / 's'} {address} {SSH_PORT}"
    options = {
        "ProxyCommand": relay,
        "HostKeyAlias": node,
        "UserKnownHostsFile": str(known),
        "StrictHostKeyChecking": "yes",
        "IdentitiesOnly": "yes",
    }
    flags = [part for name, value in options.items() for part in ("-o", f"{name}={value}")]
    terminal = ["-t"] if sys.stdin.isatty() else []
    key = str(lab.dir / "pki" / "ssh")
    return proc.foreground(["ssh", "-F", os.devnull, "-i", key, *flags, *terminal, f"root@{address}", _SHELL])
