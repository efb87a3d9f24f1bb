"""What a running lab is judged by: its components' configuration, its machines' clocks."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodeproof.artifacts.components import Components
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.configuration import configz, kubelet_configz
from nodeproof.cluster.resources import WATCHED
from nodeproof.cluster.schema import read_fields
from nodeproof.labs.ground.profiles import Profile
from nodeproof.labs.ground.spec import KUBELET_PORT
from nodeproof.labs.kinds.kind import Kind
from nodeproof.machines.machine import Machine, MachineError
from nodeproof.model.clocks import Reading
from nodeproof.model.cluster import Calibration, Configuration
from nodeproof.model.problem import Problem
from nodeproof.model.symbols import SYMBOLS, read
from nodeproof.recording.wall import wall_offset_s
from nodeproof.waiting import insist

Json = Any
MANAGER = "https://127.0.0.1:10257"
SCHEDULER = "https://127.0.0.1:10259"
CLOUD_MANAGER = "https://127.0.0.1:10258"
_OFFSET_LIMIT_S = 10.0
_READINGS = 3
_KUBELET_LINE = f"""
pid=$(ss -Hltnp 'sport = :{KUBELET_PORT}' | grep -o 'pid=[0-9]*' | head -n 1)
[ -n "$pid" ] || {{ echo "nobody serves port {KUBELET_PORT}" >&2; exit 1; }}
cat "/proc/${{pid#pid=}}/cmdline"
"""
"""The command line of who serves as a node's kubelet."""
_DROP_INS = "config-dir"
"""The flag that names a folder with more settings."""
_SERVES_LIMIT_S = 20.0
"""How long a kubelet that was restarted a moment ago may be Ready and not serve yet (503)."""


@dataclass(frozen=True)
class Running:
    """What runs in a lab: kind of lab, profile, executables, how the control plane's are started, and the
    node whose kubelet speaks for all.
    """

    kind: Kind
    profile: Profile
    components: Components
    command_lines: Mapping[str, Sequence[str]]
    node: Machine


def read_configuration(api: Api, running: Running, calibration: Calibration) -> Configuration:
    """What the components say of themselves, under what they were measured with. Raises ApiError,
    MachineError, Problem.
    """
    kubelet = insist(
        lambda: kubelet_configz(api, running.node.name), ApiError, limit_s=_SERVES_LIMIT_S, period_s=0.5
    )
    reported = {
        "kube-controller-manager": configz(api, MANAGER),
        "kube-scheduler": configz(api, SCHEDULER),
        "kubelet": kubelet,
        "kube-apiserver": {"DefaultTolerationSeconds": workloads.default_tolerations_s(api)},
    }
    _check_symbols(reported)
    components = {
        role: {
            "path": str(part.path),
            "version": part.version,
            "sha256": part.sha256,
            "origin": part.origin,
        }
        for role, part in running.components.by_role.items()
    }
    return Configuration(
        kubernetes_version=running.components.kubernetes_version,
        lab=running.kind.name,
        profile=running.profile.name,
        slack_limit_s=running.profile.slack_limit_s,
        negative_wait_s=running.profile.negative_wait_s,
        calibration=calibration,
        tested_kubelet=running.kind.runs_tested_kubelet(running.components),
        components=components,
        reported=reported,
        flags_set=_flags_set(running),
        fields=read_fields(api, WATCHED),
    )


def _flags_set(running: Running) -> Mapping[str, Mapping[str, str]]:
    """What each component was given by flags, and the kubelet by its file, too; read from what runs. Raises
    MachineError.
    """
    given = {name: flags_of(argv) for name, argv in running.command_lines.items()}
    kubelet = insist(lambda: _given_to_kubelet(running.node), MachineError, limit_s=_SERVES_LIMIT_S)
    return given if kubelet is None else {**given, "kubelet": kubelet}


def flags_of(argv: Sequence[str]) -> Mapping[str, str]:
    """The flags of a command line, and what each is set to."""
    told = (entry.removeprefix("--").partition("=") for entry in argv if entry.startswith("--"))
    return {name: value if equals else "true" for name, equals, value in told}


def _given_to_kubelet(machine: Machine) -> Mapping[str, str] | None:
    """The flags of the kubelet that runs on a machine, and the fields of the file that it was started with.
    Nothing where drop-ins set it, too: not all is known then. Raises MachineError, where it has no file, too.
    """
    flags = flags_of(_output(machine, ["sh", "-c", _KUBELET_LINE]).split("\0"))
    if flags.get(_DROP_INS):
        return None
    try:
        fields = json.loads(_output(machine, ["cat", flags["config"]]))
    except (KeyError, ValueError) as error:
        raise MachineError(f"{machine.name}: its kubelet has no file of settings: {error}") from error
    return {**flags, **{name: json.dumps(value) for name, value in fields.items()}}


def _output(machine: Machine, argv: Sequence[str]) -> str:
    done = machine.run(argv, deadline_s=_OFFSET_LIMIT_S)
    if done.status != 0:
        raise MachineError(f"{machine.name}: how its kubelet runs: {done.stderr.strip()}")
    return done.stdout


def _check_symbols(reported: Mapping[str, Json]) -> None:
    """What windows are computed from must be there. Raises Problem."""
    for name, symbol in SYMBOLS.items():
        try:
            read(symbol, reported)
        except (KeyError, TypeError, ValueError) as error:
            said = f"{symbol.component} does not report {symbol.path}, which windows need ({name})"
            raise Problem(said, "/configz", "check the component's version") from error


def read_clock(machine: Machine) -> Reading:
    """What a node's clock is ahead of ours, by the quickest of some answers on a warm connection.

    Raises MachineError.
    """
    machine.run(["true"], deadline_s=_OFFSET_LIMIT_S)
    return min((_reading(machine) for _ in range(_READINGS)), key=lambda reading: reading.error_s)


def _reading(machine: Machine) -> Reading:
    before_t = time.monotonic()
    done = machine.run(["date", "+%s.%N"], deadline_s=_OFFSET_LIMIT_S)
    t = time.monotonic()
    try:
        offset_s = float(done.stdout) - wall_offset_s() - (before_t + t) / 2
    except ValueError as error:
        raise MachineError(f"{machine.name}: date: {done.stderr.strip() or 'no answer'}") from error
    return Reading(machine.name, round(t, 6), round(offset_s, 6), round((t - before_t) / 2, 6))
