"""What a machine says of itself, asked past its kubelet."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Json, Probe, output_of

# A kubelet may be one of the programs in its file: it is asked under the name that it has there.
_ASK = r"""
. /etc/os-release
kubelet=/proc/$(systemctl show --property=MainPID --value kubelet.service)
cat <<END
kernel=$(uname -r)
os=$(uname -s)
processor=$(uname -m)
distribution=$PRETTY_NAME
runtime=$(ctr version | sed -n '/^Server/,$ s/^ *Version: *//p')
kubelet=$("$(readlink "$kubelet/exe")" --version)
command=$(tr '\0' ' ' <"$kubelet/cmdline")
machine_id=$(cat /etc/machine-id)
system_uuid=$(cat /sys/class/dmi/id/product_uuid)
boot_id=$(cat /proc/sys/kernel/random/boot_id)
hostname=$(uname -n)
addresses=$(hostname -I)
cpus=$(nproc)
memory_kib=$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)
END
"""
_AS_SAID = ("kernel", "distribution", "command", "machine_id", "system_uuid", "boot_id", "hostname")
_UNIT_BYTES = 1024
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's word for a processor, by the kernel's."""


def machine_facts(node: str) -> Probe:
    """What a node's machine says of itself: `kernel`, `os`, `architecture`, `distribution`, `runtime` and
    `kubelet` (versions of what runs), the kubelet's `command`, `machine_id`, `system_uuid`, `boot_id`,
    `hostname`, its `addresses`, how many `cpus`, and `memory` (bytes); needs the feature `systemd`.
    """

    def read(lab: Lab) -> Json:
        said = said_by(output_of(lab, node, ["sh", "-c", _ASK]))
        unsaid = sorted(name for name, value in said.items() if not value)
        if unsaid:
            raise MachineError(f"{node} does not say its {', '.join(unsaid)}")
        return facts(said)

    return Probe("facts", node, read)


def said_by(output: str) -> dict[str, str]:
    """The `name=value` lines of a machine."""
    return dict(line.split("=", 1) for line in output.splitlines())


def facts(said: Mapping[str, str]) -> dict[str, Json]:
    """The same under Go's words, versions as they are told in a Node, figures as numbers."""
    processor = said["processor"]
    return {
        **{name: said[name] for name in _AS_SAID},
        "os": said["os"].lower(),
        "architecture": _ARCHITECTURES.get(processor, processor),
        "runtime": said["runtime"].partition("~")[0],
        "kubelet": said["kubelet"].removeprefix("Kubernetes "),
        "addresses": said["addresses"].split(),
        "cpus": int(said["cpus"]),
        "memory": int(said["memory_kib"]) * _UNIT_BYTES,
    }
