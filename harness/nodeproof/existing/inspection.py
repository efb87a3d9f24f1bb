"""What the machines of an inventory answer over SSH, and which faults that refuses.

The hosts of an Ansible inventory are read by the user's own ansible-inventory(1).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from nodeproof import proc
from nodeproof.existing import marks
from nodeproof.existing.inventory import AnsibleHosts, Inventory
from nodeproof.existing.power import LOCAL
from nodeproof.faults.fault import FIRST_PID_NAMESPACE
from nodeproof.faults.machine import PowerOff
from nodeproof.faults.partition import SSH_CONNECTION, Partition
from nodeproof.faults.settings import SETTINGS_FILE
from nodeproof.faults.units import KUBELET
from nodeproof.machines.machine import MachineError, checked
from nodeproof.machines.openssh import OpenSsh, strict_config
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

_ANSIBLE_TIMEOUT_S = 60.0
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


def ansible_ssh_config(hosts: AnsibleHosts, names: Iterable[str]) -> str:
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
        return json.loads(proc.run(argv, timeout_s=_ANSIBLE_TIMEOUT_S).stdout)
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


_TIMEOUT_S = 20.0
_WORKERS = 4
SYSTEMD, OWN_KERNEL, SSH_PEER = "systemd", "own-kernel", "ssh-peer"
NEEDS: Mapping[str, tuple[str, ...]] = {
    "called-off-shutdown": ("busctl", "systemd-inhibit", KUBELET),
    "clock": (OWN_KERNEL,),
    "kubelet-settings": (KUBELET, SETTINGS_FILE),
    "link-down": ("ip",),
    "partition": ("bash", "getent", "nft", "ss", SSH_PEER),
    "swap": ("fallocate", "mkswap", "swapoff", "swapon", OWN_KERNEL),
    "unit-down": (KUBELET,),
}
"""What faults need of a machine besides systemd: programs, active units, files, or what has a name above."""
_CUTS_OFF = (PowerOff.name, Partition.name)
_MACHINE_ID = Path("/etc/machine-id")
_PHRASES = {
    KUBELET: f"active {KUBELET}",
    OWN_KERNEL: "kernel of its own",
    SSH_PEER: "address of the SSH client in SSH_CONNECTION",
}
_FACTS = f"""
cat /etc/machine-id && cat /proc/sys/kernel/random/boot_id || exit 1
for need; do
    case $need in
        {SYSTEMD}) [ -d /run/systemd/system ] && systemd-run --expand-environment=no --version ;;
        {SSH_PEER}) echo "$SSH_CONNECTION" | grep -Ex '{SSH_CONNECTION}' ;;
        {OWN_KERNEL}) [ "$(readlink /proc/1/ns/pid)" = '{FIRST_PID_NAMESPACE}' ] ;;
        *.service) systemctl is-active "$need" ;;
        /*) [ -e "$need" ] ;;
        *) command -v "$need" ;;
    esac >/dev/null 2>&1 && echo "$need"
done
exit 0
"""


@dataclass(frozen=True)
class Inspection:
    """Facts about a machine: its ids, and what of `SYSTEMD` and `NEEDS` it has."""

    machine_id: str
    boot_id: str
    provides: frozenset[str]


def inspect(inventory: Inventory, ssh: Path) -> Mapping[str, Inspection | str]:
    """Read the facts of all listed nodes' machines, or why they cannot be read; changes nothing."""
    hosts = [OpenSsh(name, ssh) for name in inventory.nodes]
    with ThreadPoolExecutor(_WORKERS) as pool:
        return dict(zip(inventory.nodes, pool.map(inspect_host, hosts), strict=True))


@contextlib.contextmanager
def ssh_config(inventory: Inventory) -> Iterator[Path]:
    """Write the configuration by which ssh reaches the listed nodes, and every host of the ssh_config.

    Raises:
        Problem: Ansible's inventory cannot be used.
    """
    own = ansible_ssh_config(inventory.hosts, inventory.nodes) if inventory.hosts else ""
    with strict_config(inventory.ssh.config, inventory.ssh.known_hosts, own) as config:
        yield config


def inspect_host(host: OpenSsh) -> Inspection | str:
    """Read the facts of one machine, or why they cannot be read."""
    needs = sorted({SYSTEMD, *chain.from_iterable(NEEDS.values())})
    try:
        completed = host.run(["sh", "-c", _FACTS, "sh", *needs], timeout_s=_TIMEOUT_S)
        machine_id, boot_id, *present = checked(completed, f"{host.host}: machine id").split()
    except (MachineError, ValueError) as error:
        return str(error)
    return Inspection(machine_id, boot_id, frozenset(present))


def refusals(fault: str, node: Json, inspection: Inspection | str) -> Iterator[str]:
    """Yield why a fault must not or cannot be injected on a Node's machine."""
    if isinstance(inspection, str):
        yield f"its machine does not answer as root over SSH: {inspection}"
        return
    if inspection.machine_id != marks.machine_id(node):
        yield "SSH leads to a machine with another machine id than its Node"
    elif inspection.boot_id != node["status"]["nodeInfo"]["bootID"]:
        yield "SSH leads to a machine with another boot id than its Node"
    if fault in _CUTS_OFF and inspection.machine_id == _own_machine_id():
        yield "nodeproof runs on its machine, and would cut itself off"
    if fault == PowerOff.name:
        return
    if SYSTEMD not in inspection.provides:
        yield "its machine has no systemd 254 or newer, whose timer heals a fault if nodeproof ends"
    missing = [_PHRASES.get(need, need) for need in NEEDS.get(fault, ()) if need not in inspection.provides]
    if missing:
        yield f"its machine has no {', no '.join(missing)}"


def _own_machine_id() -> str:
    """Return the id of the harness's machine; empty if it has none."""
    return _MACHINE_ID.read_text().strip() if _MACHINE_ID.exists() else ""


def power_refusals(inventory: Inventory, name: str, nodes: Mapping[str, Json], ssh: Path) -> Iterator[str]:
    """Yield why the power of a listed node must not or cannot be cut and restored now.

    `nodes` are the cluster's Nodes by name, `ssh` is the configuration that reaches the switch host, from
    where the driver has to work, too.
    """
    power = inventory.nodes[name].power
    if power is None or not power.switch:
        yield "the inventory has no power driver with a switch for it"
        return
    host, where = OpenSsh(power.switch, ssh), f"the switch host {power.switch}"
    facts = inspect_host(host)
    if isinstance(facts, str):
        yield f"{where} does not answer as root over SSH: {facts}"
        return
    if facts.machine_id in {marks.machine_id(nodes[other]) for other in inventory.nodes if other in nodes}:
        yield f"{where} is a machine that may be harmed"
    if SYSTEMD not in facts.provides:
        yield f"{where} has no systemd 254 or newer, whose timer restores the power if nodeproof ends"
    for place, runner in (("this machine", LOCAL), (where, host)):
        try:
            if not power.is_on(name, runner):
                yield f"its power is off, by its driver on {place}"
        except MachineError as error:
            yield f"its power driver does not answer on {place}: {error}"
