"""What a user changes of a lab: settings (`--feature-gates`, `--set`), code (`--source`), versions."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

KUBELET = "kubelet"
COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cloud-controller-manager",
    "kube-proxy",
    KUBELET,
)
GATES_OPTION, SET_OPTION, SOURCE_OPTION = "--feature-gates", "--set", "--source"
NODE_VERSIONS_OPTION, UPGRADE_OPTION = "--node-versions", "--upgrade-to"
CONTROL_PLANES_OPTION = "--control-planes"
_CONTROL_PLANES = (1, 3)
_GATE = re.compile(r"([A-Za-z][A-Za-z0-9]*)=(true|false)")
_SETTING = re.compile(r"([a-z-]+)\.([A-Za-z][A-Za-z0-9-]*)=(.*)", re.DOTALL)


@dataclass(frozen=True)
class Overrides:
    """The settings of a user.

    `settings` are the flags of each component, and the fields of KubeletConfiguration under `kubelet`.
    `known_gates` are the names in `gates` that each component knows; only these go to it. `source` names the
    checkout of Kubernetes that the components were built from, if there is one (`Checkout.text`).
    `node_versions` are the versions of kubelets in the order of the nodes' slots, repeated for further nodes;
    empty for the version of the control plane. `upgrade_to` is the version, or the folder with executables,
    that faults upgrade the control plane to; empty for none. `control_planes` is how many control planes the
    lab has.
    """

    gates: Mapping[str, bool] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    known_gates: Mapping[str, Sequence[str]] = field(default_factory=dict)
    source: str = ""
    node_versions: tuple[str, ...] = ()
    upgrade_to: str = ""
    control_planes: int = 1

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Overrides:
        """Build the settings from the output of `asdict`. Raises TypeError for anything else."""
        return cls(**{**data, "node_versions": tuple(data.get("node_versions", ()))})

    def version_of(self, slot: int) -> str:
        """Return the version of the kubelet in a slot; empty for that of the control plane."""
        return self.node_versions[slot % len(self.node_versions)] if self.node_versions else ""

    def of(self, component: str) -> dict[str, Json]:
        """Return the flags of a component, or the fields of the kubelet, with the gates that it knows."""
        own = dict(self.settings.get(component, {}))
        gates = {gate: self.gates[gate] for gate in self.known_gates.get(component, ())}
        if not gates:
            return own
        if component == KUBELET:
            return {**own, "featureGates": {**own.get("featureGates", {}), **gates}}
        texts = [f"{gate}={_text(is_on)}" for gate, is_on in gates.items()]
        return {**own, "feature-gates": ",".join(filter(None, [own.get("feature-gates", ""), *texts]))}

    def refuse_own(self, component: str, own: Iterable[str]) -> None:
        """Refuse flags or fields that a lab needs for itself, such as addresses. Raises Problem."""
        settings_in_use = sorted(self.settings.get(component, {}).keys() & {*own})
        if settings_in_use:
            message = f"a lab sets {', '.join(settings_in_use)} of {component} itself"
            raise Problem(message, SET_OPTION, "leave it out")

    @property
    def texts(self) -> tuple[str, ...]:
        """The options that were given, by which runs are told apart."""
        gates = [f"{GATES_OPTION} {gate}={_text(is_on)}" for gate, is_on in sorted(self.gates.items())]
        return (
            *filter(None, (self.source,)),
            *((f"{NODE_VERSIONS_OPTION} {','.join(self.node_versions)}",) if self.node_versions else ()),
            *((f"{UPGRADE_OPTION} {self.upgrade_to}",) if self.upgrade_to else ()),
            *((f"{CONTROL_PLANES_OPTION} {self.control_planes}",) if self.control_planes > 1 else ()),
            *gates,
            *(
                f"{SET_OPTION} {component}.{name}={_text(value)}"
                for component, settings in sorted(self.settings.items())
                for name, value in sorted(settings.items())
            ),
        )


NO_OVERRIDES = Overrides()


def without_source(texts: Iterable[str]) -> tuple[str, ...]:
    """Return `Overrides.texts` without the checkout: runs with equal rest can prove the same claims."""
    return tuple(text for text in texts if not text.startswith(f"{SOURCE_OPTION} "))


def suffix(texts: Sequence[str]) -> str:
    """Return what follows the profile in the name of a run with these `Overrides.texts`; empty without."""
    return f"+{hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:8]}" if texts else ""


def parse(gates: Iterable[str], settings: Iterable[str]) -> Overrides:
    """Parse the values of both options; of two equal names the last one counts.

    Args:
        gates: lists such as `A=true,B=false`.
        settings: `COMPONENT.FLAG=VALUE` or `kubelet.FIELD=VALUE`; a field's value is JSON, or else text.

    Raises:
        Problem: A value has another form, or the component does not exist.
    """
    by_component: dict[str, dict[str, Json]] = {}
    for text in settings:
        match = _SETTING.fullmatch(text)
        if match is None or match[1] not in COMPONENTS:
            form = "use COMPONENT.FLAG=VALUE or kubelet.FIELD=VALUE; components are "
            raise Problem(f"invalid setting {text!r}", SET_OPTION, form + ", ".join(COMPONENTS))
        component, name, value = match.groups()
        by_component.setdefault(component, {})[name] = _parse(value) if component == KUBELET else value
    return Overrides(dict(_parse_gate(gate) for text in gates for gate in text.split(",")), by_component)


def parse_control_planes(count: int) -> int:
    """Return a supported number of control planes. Raises Problem."""
    if count not in _CONTROL_PLANES:
        next_step = "use 1, or 3, which tolerate the loss of one"
        raise Problem(f"{count} control planes requested", CONTROL_PLANES_OPTION, next_step)
    return count


def _parse_gate(text: str) -> tuple[str, bool]:
    match = _GATE.fullmatch(text.strip())
    if match is None:
        form = "use NAME=true or NAME=false, separated by commas"
        raise Problem(f"{text!r} is not a feature gate", GATES_OPTION, form)
    return match[1], match[2] == "true"


def _parse(value: str) -> Json:
    try:
        return json.loads(value)
    except ValueError:
        return value


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value)
