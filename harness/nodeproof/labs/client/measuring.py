"""The evidence that a running lab is judged by: its components' configuration, its machines' clocks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nodeproof.artifacts.components import Components
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import configz, kubelet_configz, read_fields
from nodeproof.cluster.resources import WATCHED
from nodeproof.labs.base.profiles import Profile
from nodeproof.labs.base.spec import KUBELET_PORT
from nodeproof.labs.kinds.kind import Kind
from nodeproof.machines.machine import Machine, MachineError, checked
from nodeproof.model.clocks import Reading
from nodeproof.model.cluster import Calibration, Configuration, flags_of
from nodeproof.model.formula import SYMBOLS, read
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.recording.node_messages import wall_offset_s
from nodeproof.waiting import retry_on

MANAGER = "https://127.0.0.1:10257"
SCHEDULER = "https://127.0.0.1:10259"
CLOUD_MANAGER = "https://127.0.0.1:10258"
_OFFSET_TIMEOUT_S = 10.0
_READINGS = 3
_KUBELET_LINE = f"""
pid=$(ss -Hltnp 'sport = :{KUBELET_PORT}' | grep -o 'pid=[0-9]*' | head -n 1)
[ -n "$pid" ] || {{ echo "no process serves port {KUBELET_PORT}" >&2; exit 1; }}
cat "/proc/${{pid#pid=}}/cmdline"
"""
"""Prints the command line of the process that serves the kubelet's port."""
_DROP_INS = "config-dir"
"""The flag for a folder with additional settings."""
_SERVES_TIMEOUT_S = 20.0
"""How long a kubelet that has just restarted may be Ready without serving (503)."""


@dataclass(frozen=True)
class RunningLab:
    """What runs in a lab: its kind, profile, executables, and command lines of the control plane.

    `node` is the node whose kubelet represents all kubelets, `node_names` are all usable nodes.
    """

    kind: Kind
    profile: Profile
    components: Components
    command_lines: Mapping[str, Sequence[str]]
    node: Machine
    node_names: Sequence[str] = ()


def read_configuration(api: Api, running: RunningLab, calibration: Calibration) -> Configuration:
    """Read the configuration that the components report. Raises ApiError, MachineError, Problem."""
    kubelet = retry_on(
        lambda: kubelet_configz(api, running.node.name), ApiError, timeout_s=_SERVES_TIMEOUT_S, period_s=0.5
    )
    reported = {
        "kube-controller-manager": configz(api, MANAGER),
        "kube-scheduler": configz(api, SCHEDULER),
        "kubelet": kubelet,
        "kube-apiserver": {"DefaultTolerationSeconds": workloads.default_tolerations_s(api)},
    }
    _check_symbols(reported)
    versions = workloads.kubelet_versions(api, running.node_names)
    control_plane = running.components.kubernetes_version
    node_versions = {
        name: version for name, version in versions.items() if version not in ("", control_plane)
    }
    return Configuration(
        kubernetes_version=control_plane,
        lab=running.kind.name,
        profile=running.profile.name,
        slack_limit_s=running.profile.slack_limit_s,
        negative_wait_s=running.profile.negative_wait_s,
        calibration=calibration,
        tested_kubelet=running.kind.runs_tested_kubelet(running.components),
        components={role: part.to_json() for role, part in running.components.by_role.items()},
        reported=reported,
        flags_set=_flags_set(running),
        fields=read_fields(api, WATCHED),
        node_versions=node_versions,
        kubelet_version=node_versions.get(running.node.name, ""),
    )


def _flags_set(running: RunningLab) -> Mapping[str, Mapping[str, str]]:
    """Return the flags of each running component, and the kubelet's file settings. Raises MachineError."""
    flags = {name: flags_of(argv) for name, argv in running.command_lines.items()}
    kubelet = retry_on(lambda: _kubelet_settings(running.node), MachineError, timeout_s=_SERVES_TIMEOUT_S)
    return flags if kubelet is None else {**flags, "kubelet": kubelet}


def _kubelet_settings(machine: Machine) -> Mapping[str, str] | None:
    """Return the flags of a machine's running kubelet and the fields of its configuration file.

    Return None if drop-ins configure it, too: then some settings are unknown. Raises MachineError, also if it
    has no file.
    """
    flags = flags_of(_output(machine, ["sh", "-c", _KUBELET_LINE]).split("\0"))
    if flags.get(_DROP_INS):
        return None
    try:
        fields = json.loads(_output(machine, ["cat", flags["config"]]))
    except (KeyError, ValueError) as error:
        raise MachineError(
            f"{machine.name}: its kubelet has no readable configuration file: {error}"
        ) from error
    return {**flags, **{name: json.dumps(value) for name, value in fields.items()}}


def _output(machine: Machine, argv: Sequence[str]) -> str:
    completed = machine.run(argv, timeout_s=_OFFSET_TIMEOUT_S)
    return checked(completed, f"{machine.name}: cannot read how its kubelet runs")


def _check_symbols(reported: Mapping[str, Json]) -> None:
    """Check that the settings from which windows are computed are reported. Raises Problem."""
    for name, symbol in SYMBOLS.items():
        try:
            read(symbol, reported)
        except (KeyError, TypeError, ValueError) as error:
            message = f"{symbol.component} does not report {symbol.path}, which windows need ({name})"
            raise Problem(message, "/configz", "check the component's version") from error


def read_clock(machine: Machine) -> Reading:
    """Return how far a node's clock is ahead of this host's: the fastest of some readings.

    The connection is warmed up before. Raises MachineError.
    """
    machine.run(["true"], timeout_s=_OFFSET_TIMEOUT_S)
    return min((_reading(machine) for _ in range(_READINGS)), key=lambda reading: reading.error_s)


def _reading(machine: Machine) -> Reading:
    before_t = time.monotonic()
    completed = machine.run(["date", "+%s.%N"], timeout_s=_OFFSET_TIMEOUT_S)
    t = time.monotonic()
    try:
        offset_s = float(completed.stdout) - wall_offset_s() - (before_t + t) / 2
    except ValueError as error:
        raise MachineError(f"{machine.name}: date: {completed.stderr.strip() or 'no answer'}") from error
    return Reading(machine.name, round(t, 6), round(offset_s, 6), round((t - before_t) / 2, 6))
