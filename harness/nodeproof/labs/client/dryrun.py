"""Dry runs of a lab's executables with a user's settings: what a component refuses, no lab starts with.

The executables themselves know their flags, gates and fields; their help does not list gates that are GA. A
control plane component parses all flags and gates before it answers `--version`. A kubelet ignores gates
there, and a field that it does not know in its file. So it gets a file with an invalid port: it logs unknown
fields and then refuses the file, before it touches the machine (cmd/kubelet/app/server.go).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodeproof import proc
from nodeproof.artifacts.components import PROXY, Components
from nodeproof.labs.base.control_plane import flags
from nodeproof.labs.base.processes import refusal
from nodeproof.labs.base.profiles import Profile
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.overrides import COMPONENTS, GATES_OPTION, KUBELET, SET_OPTION, SOURCE_OPTION, Overrides
from nodeproof.model.problem import Problem

Json = Any
Refuses = Callable[[Mapping[str, Json]], str]
"""Returns why a component refuses flags or fields, in its own words; empty if it takes them."""
_WHERE = f"{GATES_OPTION}, {SET_OPTION}"
_TIMEOUT_S = 60.0
_UNKNOWN_GATE = re.compile(r"unrecognized feature gate: (\w+)")
_UNKNOWN_FIELD = re.compile(r'unknown field \\?"([^"\\]+)')
_ERRORS = re.compile(r"invalid configuration: .*?(?=, invalid configuration: |\]?, path: |\]?$)")
"""The errors in the kubelet's message (pkg/kubelet/apis/config/validation)."""
_ENDS = {PROXY: "--write-config-to=/dev/null"}
"""What ends a component after it took its flags, if not `--version`: kube-proxy ignores gates there."""


def check(overrides: Overrides, components: Components, kind: Kind, profile: Profile) -> Overrides:
    """Return the settings with the gates that each component knows.

    Raises:
        Problem: No component knows a gate, or a component refuses a setting; with its message.
    """
    if not overrides.texts:
        return overrides
    if kind.connect is not None:
        message = f"the components of a {kind.name} lab are not started by nodeproof"
        raise Problem(message, f"{_WHERE}, {SOURCE_OPTION}", "leave them out")
    known_gates = {
        component: _known_gates(overrides, component, refuses)
        for component, refuses in _refusals(components, kind, profile).items()
    }
    unknown = [gate for gate in overrides.gates if not any(gate in gates for gates in known_gates.values())]
    if unknown:
        version, gates = components.kubernetes_version, ", ".join(unknown)
        message = f"no component of Kubernetes {version} knows the feature gate {gates}"
        raise Problem(message, GATES_OPTION, "leave it out, or choose another --kubernetes-version")
    return replace(overrides, known_gates=known_gates)


def _known_gates(overrides: Overrides, component: str, refuses: Refuses) -> Sequence[str]:
    """Return the gates that a component knows. Raises Problem if it refuses anything else."""
    gates = list(overrides.gates)
    while message := refuses(replace(overrides, known_gates={component: gates}).of(component)):
        others = [gate for gate in gates if gate not in _UNKNOWN_GATE.findall(message)]
        if others == gates:
            raise Problem(f"{component} refuses its settings: {message}", _WHERE, "correct the setting")
        gates = others
    return gates


def _refusals(components: Components, kind: Kind, profile: Profile) -> Mapping[str, Refuses]:
    """Return for each component a function that tries settings."""

    def of_flags(component: str) -> Refuses:
        argv = (str(components.path(component)), _ENDS.get(component, "--version"))
        return lambda settings: _refused_flags(argv, settings)

    program = str(components.path(kind.kubelet_role))
    own = {**kind.kubelet(), **profile.kubelet}
    of_kubelet = {KUBELET: lambda fields: _refused_fields(program, own, fields)}
    return {component: of_flags(component) for component in COMPONENTS if component != KUBELET} | of_kubelet


def _refused_flags(argv: Sequence[str], settings: Mapping[str, Json]) -> str:
    if not settings:
        return ""
    program, *end = argv
    completed = _run([program, *flags(settings), *end])
    return _reason(completed.stderr or completed.stdout) if completed.status else ""


def _refused_fields(program: str, own: Mapping[str, Json], fields: Mapping[str, Json]) -> str:
    """Return why a kubelet refuses fields of its file, apart from what it always refuses here."""
    if not fields:
        return ""
    always, complaints = (_complaints(program, {**own, **added}) for added in ({}, fields))
    return "; ".join(complaint for complaint in complaints if complaint not in always)


def _complaints(program: str, fields: Mapping[str, Json]) -> Sequence[str]:
    """Return what a kubelet says against a file with an invalid port; the cgroups here are not its own."""
    meta = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    file = {**meta, "failCgroupV1": False, **fields, "port": -1}
    output = _run([program, "--config=/dev/stdin"], json.dumps(file)).stderr
    unknown = [f"KubeletConfiguration has no field {field}" for field in _UNKNOWN_FIELD.findall(output)]
    return unknown + (_ERRORS.findall(refusal(output)) or [_reason(output)])


def _reason(output: str) -> str:
    """Return a component's own reason for its end, or its last line."""
    return refusal(output) or output.strip().rpartition("\n")[2]


def _run(argv: Sequence[str], stdin: str = "") -> proc.Result:
    try:
        return proc.run(argv, timeout_s=_TIMEOUT_S, stdin=stdin, check=False)
    except proc.CommandFailed as error:
        message = f"{argv[0]} did not exit within {_TIMEOUT_S:g} s when its settings were checked"
        next_step = "try again on an idle machine, or use other executables (--components)"
        raise Problem(message, _WHERE, next_step, error.output) from error
