"""Detection of configuration values that a fault changed during the recording."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodeproof.model.claim import Claim
from nodeproof.model.history import History
from nodeproof.model.judgment import Check
from nodeproof.model.symbols import SYMBOLS
from nodeproof.model.window import WindowSpec, symbols_of

Json = Any
KUBELET = "kubelet"
_SETTINGS = ("settings", "kubelet-settings")


def set_meanwhile(check: Check, claim: Claim, history: History) -> str:
    """Return which value used by a check was changed by a fault of the recording, or an empty string."""
    for fault in _settings(history):
        component = KUBELET if fault["fault"] == "kubelet-settings" else str(fault["node"])
        names = {plain(name) for name in fault.get("flags") or fault.get("settings") or ()}
        for figure, owner, path in _figures(check, claim):
            if owner == component and any(plain(path.rpartition(".")[2]) in name for name in names):
                return f"{figure} of {component} was set by fault {fault['id']}"
    return ""


def _settings(history: History) -> Iterator[Mapping[str, Json]]:
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
