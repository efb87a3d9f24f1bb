"""Values of the running configuration: the check of a default, and values that a fault changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from nodeproof.checks.checks import Case, Measurement, Undecided, any_time, compare, measures
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import Configuration
from nodeproof.model.formula import SYMBOLS, field_at
from nodeproof.model.history import History
from nodeproof.model.judgment import Check, words_in
from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s
from nodeproof.model.verdict import Measured
from nodeproof.model.window import WindowSpec, symbols_of

KUBELET = "kubelet"
_SETTINGS = ("settings", "kubelet-settings")
NOTHING = float("-inf")
"""The value of a setting that a component reports as null."""


def changed_settings(check: Check, claim: Claim, history: History) -> str:
    """Return which value used by a check was changed by a fault of the recording, or an empty string."""
    for fault in _settings(history):
        # The place of a fault on the control plane is a component.
        component = KUBELET if fault["fault"] == "kubelet-settings" else str(fault["node"])
        names = {plain(name) for name in fault.get("flags") or fault.get("settings") or ()}
        for figure, owner, path in _figures(check, claim):
            # DefaultTolerationSeconds.Unreachable is only a part of default-unreachable-toleration-seconds.
            if owner == component and any(plain(path.rpartition(".")[2]) in name for name in names):
                return f"{figure} of {component} was set by fault {fault['id']}"
    return ""


def changed_default(claim: Claim, configuration: Configuration) -> str:
    """Return which setting is set though a claim assumes its default, or an empty string."""
    for component, _dot, name in (setting.partition(".") for setting in claim.defaults):
        for flag, value in configuration.flags_set.get(component, {}).items():
            if plain(flag) == plain(name):
                return f"{component} has {flag}={value}; the claim assumes the default"
    return ""


def _settings(history: History) -> Iterator[Mapping[str, Json]]:
    """Yield the faults that changed settings, and each join in the same form."""
    for entry in history.of_kind("fault"):
        if entry.data["step"] == "injecting" and entry.data["fault"].get("fault") in _SETTINGS:
            yield entry.data["fault"]
    for entry in history.of_kind("machine"):
        if entry.data["step"] == "joining":
            kubelet_settings = {"id": f"join of {entry.data['node']}", "settings": entry.data["kubelet"]}
            yield {"fault": "kubelet-settings", "node": entry.data["node"], **kubelet_settings}


def _figures(check: Check, claim: Claim) -> Iterator[tuple[str, str, str]]:
    """Yield the configuration values that a check uses: name, component and path of the reported field."""
    if "window" in check.args:
        for symbol in sorted(symbols_of(WindowSpec.from_json(check.args["window"])) & SYMBOLS.keys()):
            yield symbol, SYMBOLS[symbol].component, SYMBOLS[symbol].path
    for constant in claim.constants if check.name == "default" else ():
        if constant.name == check.args["constant"]:
            yield constant.name, constant.component, constant.reported or constant.flag


def plain(name: str) -> str:
    """Return the common form of a flag and its field: node-monitor-period, NodeMonitorPeriod."""
    return name.replace("-", "").lower()


@measures("default", times=any_time)
def default_of(case: Case, constant: str) -> Measurement:
    """Check that a component started without the flag reports the catalogue's constant for its version."""
    configuration = case.context.configuration
    default = next((entry for entry in case.claim.constants if entry.name == constant), None)
    if default is None:
        raise KeyError(f"{case.claim.id} has no constant {constant}")
    flags = configuration.flags_set.get(default.component)
    if flags is None:
        reason = f"the flags of {default.component} are unknown; this may not be the default"
        raise Undecided("lab-lacks", reason)
    flag = next((name for name in flags if plain(name) == plain(default.flag)), None)
    if flag is not None:
        raise Undecided("scaled", f"{flag}={flags[flag]} is set; this is not the default")
    reported = _reported(configuration.reported.get(default.component), default.reported)
    if reported is None:
        raise Undecided("gap", f"{default.component} reported no {default.reported}")
    if reported == NOTHING:
        reason = f"{default.component} sets no {default.name}"
        return Measurement(reason, Measured("nothing"), finding="deviates")
    expected, measured = default.at(configuration.version_of(default.component)), _format(reported, default)
    gates = next((value for name, value in flags.items() if plain(name) == "featuregates"), "")
    if reported != expected and gates:
        raise Undecided("scaled", f"feature gates are set ({gates}); {measured} may not be the default")
    reason = f"{default.name} is {measured} without a flag"
    return compare(reported == expected, reason, str(_format(expected, default)), measured)


def _format(value: float, constant: Constant) -> Measured:
    if constant.unit == "boolean":
        return Measured(str(bool(value)).lower())
    return Measured(value, constant.unit)


def _reported(configz: Json, path: str) -> float | None:
    try:
        value = field_at(path, configz)
    except KeyError:
        return None
    if value is None:
        return NOTHING
    return float(value) if isinstance(value, bool) else duration_s(value)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Check)  # noqa: PLE0605
