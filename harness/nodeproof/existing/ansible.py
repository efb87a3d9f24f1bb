"""The hosts of an Ansible inventory as an ssh_config, by the user's own ansible-inventory(1)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nodeproof import proc
from nodeproof.existing.inventory import AnsibleHosts
from nodeproof.model.problem import Problem

Json = Any
_TIMEOUT_S = 60.0
# Variables of the plugin ansible.builtin.ssh; the last one of an option that is set counts.
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "HostName": ("ansible_host", "ansible_ssh_host"),
    "User": ("ansible_user", "ansible_ssh_user"),
    "Port": ("ansible_port", "ansible_ssh_port"),
    "IdentityFile": ("ansible_private_key_file", "ansible_ssh_private_key_file"),
}
_CONNECTIONS = ("ssh", "smart", "ansible.builtin.ssh")
_ARGUMENTS = ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args")
_PLAIN = re.compile(r'[^"\\\n\r{}]+')
"""A value that ssh_config(5) can quote and that is no template, which ansible-inventory does not resolve."""


def ssh_config(hosts: AnsibleHosts, names: Iterable[str]) -> str:
    """Return a `Host` block for each of the Nodes `names`, which are hosts of the group.

    Raises:
        Problem: ansible-inventory fails, a Node is no host of the group, or a variable cannot be used.
    """
    listed = _list(hosts)
    members = set(_members(hosts.group, listed))
    absent = [name for name in names if name not in members]
    if absent:
        what = f"no host of group {hosts.group}: {', '.join(absent)}"
        raise Problem(what, str(hosts.inventory), "name the hosts like their Nodes, or choose another group")
    variables = listed.get("_meta", {}).get("hostvars", {})
    return "".join(f"Host {name}\n{_options(hosts, name, variables.get(name, {}))}" for name in names)


def _list(hosts: AnsibleHosts) -> Json:
    argv = ["ansible-inventory", "-i", str(hosts.inventory), "--list"]
    try:
        return json.loads(proc.run(argv, timeout_s=_TIMEOUT_S).stdout)
    except (proc.CommandFailed, ValueError) as error:
        output = error.output if isinstance(error, proc.CommandFailed) else "its output is not JSON"
        reason = (output.strip().splitlines() or ["no answer"])[-1]
        step = "install ansible-core, or leave the key hosts out of the inventory"
        raise Problem(f"ansible-inventory: {reason}", str(hosts.inventory), step) from error


def _members(group: str, listed: Json) -> Iterator[str]:
    """Yield the hosts of a group and of its children, which form no cycle."""
    yield from listed.get(group, {}).get("hosts", ())
    for child in listed.get(group, {}).get("children", ()):
        yield from _members(child, listed)


def _options(hosts: AnsibleHosts, name: str, variables: Mapping[str, Json]) -> str:
    where, step = f"{hosts.inventory}: {name}", "write it into the ssh_config instead"
    for variable in _ARGUMENTS:
        if variables.get(variable):
            raise Problem(f"{variable} is not read", where, step)
    if variables.get("ansible_connection", "ssh") not in _CONNECTIONS:
        raise Problem("ansible_connection is not ssh", where, "choose hosts that SSH reaches")
    lines = []
    for option, aliases in _OPTIONS.items():
        for variable in [alias for alias in aliases if variables.get(alias) is not None][-1:]:
            if not _PLAIN.fullmatch(str(variables[variable])):
                raise Problem(f"{variable} is a template, or has quotes or line breaks", where, step)
            lines.append(f'  {option} "{variables[variable]}"\n')
    return "".join(lines)
