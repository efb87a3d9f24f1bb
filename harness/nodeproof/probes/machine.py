"""Probes of a node's machine, read by commands: files, clock, D-Bus, memory, containers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.handle import LabHandle
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import words_in
from nodeproof.model.pattern import Json
from nodeproof.probes.probe import Probe, output_of
from nodeproof.waiting import retry_on


def file_of(node: str, path: str) -> Probe:
    """Return a probe of a file's content, without surrounding white space; empty if there is no file."""

    def read(lab: LabHandle) -> str:
        return output_of(lab, node, ["sh", "-c", '[ ! -e "$0" ] || cat "$0"', path]).strip()

    return Probe(path, node, read)


def wall_clock(node: str) -> Probe:
    """Return a probe of a node's own clock (whole seconds since 1970)."""
    return Probe("wall clock", node, lambda lab: int(output_of(lab, node, ["date", "+%s"])))


def dbus_property(node: str, service: str, path: str, interface: str, name: str) -> Probe:
    """Return a probe of a property on the node's system bus; needs the feature `systemd`."""

    def read(lab: LabHandle) -> Json:
        output = output_of(
            lab, node, ["busctl", "--json=short", "get-property", service, path, interface, name]
        )
        return json.loads(output)["data"]

    return Probe(f"{interface}.{name}", node, read)


INHIBITORS = "shutdown inhibitors"
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


def inhibitors(node: str) -> Probe:
    """Return a probe of the shutdown locks, a line each: `what who why mode`; needs the feature `systemd`."""

    def read(lab: LabHandle) -> str:
        output = output_of(lab, node, ["busctl", "--json=short", "call", *_LOGIN, "ListInhibitors"])
        return "\n".join(" ".join(entry[:4]) for entry in json.loads(output)["data"][0])

    return Probe(INHIBITORS, node, read)


_UNIT_BYTES = 1024
"""The unit of each figure in /proc/meminfo that is marked kB (proc_meminfo(5))."""


def meminfo(node: str, name: str) -> Probe:
    """Return a probe of a figure of the node's /proc/meminfo, such as `MemTotal` or `SwapTotal` (bytes)."""

    def read(lab: LabHandle) -> int:
        for line in output_of(lab, node, ["cat", "/proc/meminfo"]).splitlines():
            field, _, value = line.partition(":")
            if field == name:
                return int(value.split()[0]) * _UNIT_BYTES
        raise MachineError(f"{node}: no {name} in /proc/meminfo")

    return Probe(name, node, read)


_ANYWHERE = "198.51.100.1"
"""A documentation address (RFC 5737): only the route is looked up, nothing is sent."""


def source_address(machine: str) -> Probe:
    """Return a probe of the IPv4 address that a machine's kernel chooses for its default route."""

    def read(lab: LabHandle) -> str:
        (route,) = json.loads(output_of(lab, machine, ["ip", "-j", "route", "get", _ANYWHERE]))
        return str(route["prefsrc"])

    return Probe("address on the default route", machine, read)


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
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""Go's name of an architecture, by the kernel's."""


def machine_facts(node: str) -> Probe:
    """Return a probe of a machine's own facts; needs the feature `systemd`.

    They are `kernel`, `os`, `architecture`, `distribution`, `runtime` and `kubelet` (versions of what runs),
    the kubelet's `command`, `machine_id`, `system_uuid`, `boot_id`, `hostname`, its `addresses`, the number
    of `cpus`, and `memory` (bytes).
    """

    def read(lab: LabHandle) -> Json:
        values = parse_values(output_of(lab, node, ["sh", "-c", _READ]))
        missing = sorted(name for name, value in values.items() if not value)
        if missing:
            raise MachineError(f"{node} does not report its {', '.join(missing)}")
        return facts(values)

    return Probe("facts", node, read)


def parse_values(output: str) -> dict[str, str]:
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


_UP_TIMEOUT_S = 60.0
"""Until a container runs on a busy emulated machine."""

_NOT_YET = ("UNKNOWN", "CREATED")
"""States of a task before its process runs."""


def task_of(node: str, container: str) -> Probe:
    """Return a probe of a container's state in containerd (namespace `k8s.io`), such as `RUNNING`.

    It waits until the container has started. It needs the feature `real-pods`.
    """

    def read_state(lab: LabHandle) -> str:
        for line in output_of(lab, node, ["ctr", "-n", "k8s.io", "task", "ls"]).splitlines():
            words = line.split()
            if words[:1] == [container] and words[-1] not in _NOT_YET:
                return words[-1]
        raise MachineError(f"{node}: no task of {container}")

    def read(lab: LabHandle) -> str:
        return retry_on(lambda: read_state(lab), MachineError, timeout_s=_UP_TIMEOUT_S, period_s=0.5)

    return Probe(f"task of {container}", node, read)


SWAP_LIMIT = "memory.swap.max"


def cgroup_file(pod: Pod, name: str) -> Probe:
    """Return a probe of a cgroup (v2) file of a pod's first container; needs the feature `real-pods`."""

    def read(lab: LabHandle) -> str:
        api_pod = lab.cluster.api.get(pod_path(pod.namespace, pod.name))
        statuses = api_pod["status"].get("containerStatuses") or [{}]
        container = str(statuses[0].get("containerID", "")).rpartition("/")[2]
        if not container:
            raise MachineError(f"{pod.node}: no container of {pod.name} has started; see its events")
        scope = f"cri-containerd-{container}.scope"
        find = ["find", "/sys/fs/cgroup", "-path", f"*/{scope}/{name}", "-exec", "cat", "{}", ";"]
        content = output_of(lab, pod.node, find).strip()
        if not content:
            raise MachineError(f"{pod.node}: no {name} in a cgroup of {pod.name}")
        return content

    return Probe(name, pod.name, read)


def swap_limit(pod: Pod) -> Probe:
    """Return a probe of a pod's swap limit in the kernel (bytes, or `max`); needs the feature `real-pods`."""
    return cgroup_file(pod, SWAP_LIMIT)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Probe)  # noqa: PLE0605
