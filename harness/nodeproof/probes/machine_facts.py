"""Facts about a machine, read without its kubelet."""

from __future__ import annotations

from collections.abc import Mapping

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Json, Probe, output_of

# A kubelet may be one of several programs in its executable, so run it under the name that it has there.
_READ = r"""
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
_UNCHANGED = ("kernel", "distribution", "command", "machine_id", "system_uuid", "boot_id", "hostname")
_UNIT_BYTES = 1024
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's name of an architecture, by the kernel's."""


def machine_facts(node: str) -> Probe:
    """Return a probe of a machine's own facts; needs the feature `systemd`.

    They are `kernel`, `os`, `architecture`, `distribution`, `runtime` and `kubelet` (versions of what runs),
    the kubelet's `command`, `machine_id`, `system_uuid`, `boot_id`, `hostname`, its `addresses`, the number
    of `cpus`, and `memory` (bytes).
    """

    def read(lab: Lab) -> Json:
        values = said_by(output_of(lab, node, ["sh", "-c", _READ]))
        missing = sorted(name for name, value in values.items() if not value)
        if missing:
            raise MachineError(f"{node} does not report its {', '.join(missing)}")
        return facts(values)

    return Probe("facts", node, read)


def said_by(output: str) -> dict[str, str]:
    """Return the `name=value` lines of a machine as a mapping."""
    return dict(line.split("=", 1) for line in output.splitlines())


def facts(values: Mapping[str, str]) -> dict[str, Json]:
    """Return facts from these values: Go's names, versions as in a Node, figures as numbers."""
    processor = values["processor"]
    return {
        **{name: values[name] for name in _UNCHANGED},
        "os": values["os"].lower(),
        "architecture": _ARCHITECTURES.get(processor, processor),
        "runtime": values["runtime"].partition("~")[0],
        "kubelet": values["kubelet"].removeprefix("Kubernetes "),
        "addresses": values["addresses"].split(),
        "cpus": int(values["cpus"]),
        "memory": int(values["memory_kib"]) * _UNIT_BYTES,
    }
