"""Allowed intervals with their arithmetic, computed from the running configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, ParamSpec, Self

from nodeproof.model.cluster import RENEW_JITTER, UPDATE_JITTER, Configuration
from nodeproof.model.formula import SLACK, SYMBOLS, Term
from nodeproof.model.pattern import Json

Parameters = ParamSpec("Parameters")
Shape = Literal["period", "within", "negative"]
Duration = float | str
"""A duration: a number of seconds, or a formula of them, such as `G + P`."""
BIND_S = 15.0
"""An unschedulable pod is retried when its node changes, after at most 10 s (podMaxBackoffSeconds)."""

POD_GC_S = 20.0
"""gcCheckPeriod of the pod garbage collector, compiled in (pkg/controller/podgc/gc_controller.go)."""

_MISREAD = "misread"
"""Largest error of the recorded times (s)."""

QUARANTINE_S = 40.0
"""quarantineTime, in the same file: for so long the collector ignores pods of a missing Node."""


@dataclass(frozen=True)
class Stored:
    """Something by name and arguments, stored in `judgments.json` and evaluated by the current code."""

    name: str
    args: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> Mapping[str, Json]:
        """Return the stored JSON."""
        return {"name": self.name, "args": dict(self.args)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Self:
        """Read stored JSON. Raises KeyError if it lacks the name or the arguments."""
        return cls(data["name"], data["args"])


class WindowSpec(Stored):
    """A window by name and arguments."""


@dataclass(frozen=True)
class Window:
    """The interval [low_s, high_s] after an anchor.

    `nominal_s` is the claimed period or bound. A `period` window must exclude half and double of it, a
    `within` window double of it; otherwise it proves nothing about the claimed value.
    """

    low_s: float
    high_s: float
    nominal_s: float
    shape: Shape
    low_arithmetic: str
    high_arithmetic: str

    @property
    def arithmetic(self) -> str:
        """The interval for output: `[G, G + 2P + slack] = [12.00, 14.62] s`."""
        return f"[{self.low_arithmetic}, {self.high_arithmetic}] = [{self.low_s:.2f}, {self.high_s:.2f}] s"

    @property
    def discerning(self) -> bool:
        """Whether the window excludes double the claimed value and, for a period, half of it."""
        if self.shape == "negative":
            return self.high_s > 0
        if self.high_s >= 2 * self.nominal_s:
            return False
        return self.shape == "within" or self.low_s > self.nominal_s / 2

    def holds(self, value_s: float) -> bool:
        """Return whether a measured time is inside."""
        return self.low_s <= value_s <= self.high_s

    def to_json(self) -> Mapping[str, Json]:
        """Return the JSON stored in `verdicts.json`."""
        return {
            "low_s": round(self.low_s, 3),
            "high_s": round(self.high_s, 3),
            "nominal_s": self.nominal_s,
            "shape": self.shape,
            "arithmetic": self.arithmetic,
        }


@dataclass(frozen=True)
class WindowContext:
    """The context for computing a window: the running configuration, and the slack of this judgment (s)."""

    configuration: Configuration
    slack_s: float
    misread_s: float = 0.0
    """Part of the slack due to recorded times that may be wrong, in either direction."""


@dataclass(frozen=True)
class Formula:
    """A window over symbols: the claimed value, and both ends.

    `arguments` maps symbols to arguments of the window, `anchor_details` maps symbols to details of the
    anchor's occurrence (0 if missing).
    """

    shape: Shape
    nominal: str
    low: str
    high: str
    arguments: Mapping[str, str] = field(default_factory=dict)
    anchor_details: Mapping[str, str] = field(default_factory=dict)

    @property
    def symbols(self) -> frozenset[str]:
        """All symbols in the formulas. Raises ValueError if one is not a formula."""
        return frozenset().union(*(Term.of(text).symbols for text in (self.nominal, self.low, self.high)))


def compute(spec: WindowSpec, context: WindowContext, anchor: Mapping[str, Json]) -> Window:
    """Compute a window; `anchor` holds the details of the anchor's occurrence.

    Raises:
        KeyError: This version does not know the window or a symbol.
    """
    formula = _formula(spec, anchor)

    def lookup(symbol: str) -> float:
        if symbol in formula.arguments:
            return float(spec.args[formula.arguments[symbol]])
        if symbol in formula.anchor_details:
            return float(anchor.get(formula.anchor_details[symbol], 0.0))
        if symbol == _MISREAD:
            return context.misread_s
        return context.slack_s if symbol == SLACK else context.configuration[symbol]

    nominal, low, high = (Term.of(text) for text in (formula.nominal, formula.low, formula.high))
    if context.misread_s and formula.shape != "negative" and SLACK not in low.symbols:
        low = Term.of(f"{formula.low} - {_MISREAD}")
    return Window(
        low.value(lookup),
        high.value(lookup),
        nominal.value(lookup),
        formula.shape,
        low.arithmetic(lookup),
        high.arithmetic(lookup),
    )


def longer(spec: WindowSpec, seconds: float) -> WindowSpec:
    """Return the window of an absence, `seconds` longer.

    Raises:
        KeyError: This version does not know the window.
        ValueError: It is not the window of an absence.
    """
    formula = _formula(spec, {})
    if formula.shape != "negative":
        raise ValueError(f"{spec.name} is not the window of an absence")

    def bind(text: str) -> str:
        for symbol, argument in formula.arguments.items():
            text = re.sub(rf"\b{symbol}\b", f"{float(spec.args[argument]):g}", text)
        return text

    high = f"{bind(formula.high)} + {seconds:g}"
    return WindowSpec(
        "formula", {"shape": "negative", "nominal": high, "low": bind(formula.low), "high": high}
    )


def symbols_of(spec: WindowSpec) -> frozenset[str]:
    """Return the symbols of a window.

    Raises:
        KeyError: This version does not know the window.
    """
    formula = _formula(spec, {})
    return formula.symbols - formula.arguments.keys() - formula.anchor_details.keys()


_FORMULAS: dict[str, Formula | Callable[[Mapping[str, Json]], Formula]] = {}
"""The formula of each window, by its name in recorded runs, or a function of the details of the anchor."""
_UPDATE = f"{1 + UPDATE_JITTER:g}U"


def computed_by(
    formula: Formula | Callable[[Mapping[str, Json]], Formula], name: str = ""
) -> Callable[[Callable[Parameters, WindowSpec]], Callable[Parameters, WindowSpec]]:
    """Register the formula of the window that a function returns; `name` is its name in recorded runs."""

    def register(constructor: Callable[Parameters, WindowSpec]) -> Callable[Parameters, WindowSpec]:
        _FORMULAS[name or constructor.__name__] = formula
        return constructor

    return register


def _formula(spec: WindowSpec, anchor: Mapping[str, Json]) -> Formula:
    if spec.name == "formula":
        return Formula(**spec.args)
    formula = _FORMULAS[spec.name]
    return formula if isinstance(formula, Formula) else formula(anchor)


def _detection(anchor: Mapping[str, Json]) -> Formula:
    # The controller evaluates a status heartbeat one pass later than a lease.
    passes = 3 if anchor.get("heartbeat") == "status" else 2
    low = "G - clock" if anchor.get("error_s") else "G"
    # The controller counts from its receipt, which a busy machine may delay for seconds.
    under_way = " + under_way" if anchor.get("under_way_s") else ""
    anchor_details = {"clock": "error_s", "under_way": "under_way_s"}
    return Formula("period", "G", low, f"G + {passes}P{under_way} + slack", anchor_details=anchor_details)


@computed_by(_detection)
def detection() -> WindowSpec:
    """Bound the time from the last heartbeat to Ready=Unknown.

    Source: monitorNodeHealth in pkg/controller/nodelifecycle.
    """
    return WindowSpec("detection")


@computed_by(Formula("period", "G", f"G - {1 + RENEW_JITTER:g}R - slack", "G + 3P + slack"))
def detection_from_fault() -> WindowSpec:
    """Bound the time from the cut to Ready=Unknown: part of the grace period may have passed before."""
    return WindowSpec("detection_from_fault")


@computed_by(Formula("within", _UPDATE, "-slack", f"{_UPDATE} + 1 + slack"))
def status_update() -> WindowSpec:
    """Bound the time from a change of a Node's status to the kubelet's next report.

    The kubelet compares every U, up to 4 % later (pkg/kubelet/kubelet.go: JitterUntil), with a copy that lags
    a little.
    """
    return WindowSpec("status_update")


# 1 s allows for a pass: an empty rate-limited queue is polled every 100 ms (NodeEvictionPeriod), so a pass
# with its writes takes well below 1 s.
@computed_by(Formula("within", "max(P, 1/E) + 1", "-slack", "max(P, 1/E) + 1 + slack"))
def taint_pass() -> WindowSpec:
    """Bound the time from Ready=Unknown to the NoExecute taint, for the first node of a healthy zone.

    If the tainter's cache lacks the condition, a pass drops the node and uses up the token. The next monitor
    pass retries, and the bucket has a token 1/E after the first (doNoExecuteTaintingPass in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    """
    return WindowSpec("taint_pass")


# 0.1 s allows for polling, and 0.5 s for a controller's client, which may queue requests.
@computed_by(Formula("period", "1/E", "1/E - slack", "1/E + 0.6 + slack"))
def spacing() -> WindowSpec:
    """Bound the time from one NoExecute taint of a zone to the next, while nodes are waiting for theirs.

    The zone's bucket holds one token, and is polled every 100 ms
    (pkg/controller/nodelifecycle/scheduler/rate_limited_queue.go: EvictionRateLimiterBurst,
    NodeEvictionPeriod).
    """
    return WindowSpec("spacing")


@computed_by(Formula("period", "1/E2", "1/E2 - slack", "1/E2 + 0.6 + slack"))
def secondary_spacing() -> WindowSpec:
    """Bound the same time in a large zone that is partially disrupted."""
    return WindowSpec("secondary_spacing")


@computed_by(Formula("negative", "1.15/E2", "P + 1", "P + 1 + 1.15/E2"))
def stopped() -> WindowSpec:
    """Require no NoExecute taint after the node that disrupts a small zone, once a pass has noticed.

    The window is longer than the time between two taints at the secondary rate.
    """
    return WindowSpec("stopped")


@computed_by(Formula("within", "P + 1", "-slack", "P + 1 + slack"))
def monitor_pass() -> WindowSpec:
    """Bound the time from Ready=True to the effect of the node monitor's next pass."""
    return WindowSpec("monitor_pass")


@computed_by(Formula("period", "T", "T - slack", "T + slack", {"T": "toleration_s"}))
def toleration(seconds: float) -> WindowSpec:
    """Bound the time from the taint to the pod's deletion by its tolerationSeconds."""
    return WindowSpec("toleration", {"toleration_s": seconds})


@computed_by(Formula("period", "T", "T - slack", "T + slack"))
def default_toleration() -> WindowSpec:
    """Bound the time from the taint to the pod's deletion by DefaultTolerationSeconds."""
    return WindowSpec("default_toleration")


@computed_by(Formula("period", "R", "R - 0.1", f"{1 + RENEW_JITTER:g}R + slack"))
def renewals() -> WindowSpec:
    """Bound the time from one lease renewal to the next."""
    return WindowSpec("renewals")


# 60 s are added to the healing itself: a kubelet notices a dead connection after its HTTP/2 read-idle and
# ping timeouts, then backs off.
@computed_by(
    Formula(
        "within", "healing + 60", "0", "healing + 60 + slack", anchor_details={"healing": "healing_took_s"}
    )
)
def recovery() -> WindowSpec:
    """Bound the time from `healing` until a node is Ready again, for waits only.

    It does not start at `healed`: if healing is a boot, the node may report before the harness notices the
    boot.
    """
    return WindowSpec("recovery")


def pod_gc_pass() -> WindowSpec:
    """Require the absence of an event for one full pass of the pod garbage collector."""
    return absence(POD_GC_S + 2.0)


@computed_by(
    Formula(
        "period",
        f"{QUARANTINE_S + POD_GC_S:g}",
        f"{QUARANTINE_S:g} - slack",
        f"{QUARANTINE_S + 2 * POD_GC_S:g} + slack",
    )
)
def quarantine() -> WindowSpec:
    """Bound the time from a Node's removal to the removal of its pods.

    The collector misses the Node at its next pass, ignores its pods for the quarantine, and removes them at
    the pass after that (gcCheckPeriod and quarantineTime in pkg/controller/podgc/gc_controller.go). Use it
    only after `wait_podgc_quarantine`: the rest of an earlier quarantine shortens it.
    """
    return WindowSpec("quarantine")


@computed_by(Formula("within", "bound", "0", "bound + slack", {"bound": "bound_s"}))
def afterwards(bound_s: float) -> WindowSpec:
    """Bound the time by a value (s), without tolerance before the anchor; both must be on the same clock."""
    return WindowSpec("afterwards", {"bound_s": bound_s})


@computed_by(Formula("period", "T", "T - slack", "1.5T + slack", {"T": "grace_s"}))
def grace_period(seconds: float) -> WindowSpec:
    """Bound the time from SIGTERM to the end of a container that ignores it: 1 to 1.5 times its grace period.

    The kubelet itself gives a runtime that much longer (pkg/kubelet/pod_workers.go: killPodNow).
    """
    return WindowSpec("grace_period", {"grace_s": seconds})


def formula(shape: Shape, nominal: str, low: str, high: str) -> WindowSpec:
    """Return a window of one's own, over the symbols of `nodeproof.model.formula` and `slack`.

    Raises:
        ValueError: A formula is invalid, or slack is missing or not allowed in it.
        KeyError: A symbol does not exist.
    """
    parsed = Formula(shape, nominal, low, high)
    if SLACK in Term.of(nominal).symbols:
        raise ValueError("slack in the claimed value")
    if shape != "negative" and SLACK not in Term.of(high).symbols:
        raise ValueError(f"no slack in {high!r}: measuring may add some to a true duration")
    for symbol in parsed.symbols - {SLACK}:
        SYMBOLS[symbol]
    return WindowSpec("formula", {"shape": shape, "nominal": nominal, "low": low, "high": high})


@computed_by(Formula("within", "bound", "-slack", "bound + slack", {"bound": "bound_s"}), "prompt")
def up_to(duration_s: Duration) -> WindowSpec:
    """Allow at most a duration (s): a number, or a formula such as `G + P`."""
    if isinstance(duration_s, str):
        return formula("within", duration_s, "-slack", f"{duration_s} + slack")
    return WindowSpec("prompt", {"bound_s": duration_s})


def pod_gc_removal() -> WindowSpec:
    """Allow a pass of the pod garbage collector (every 20 s), and 5 s for its work."""
    return up_to("20 + 5")


@computed_by(Formula("negative", "wait", "0", "wait", {"wait": "wait_s"}))
def absence(duration_s: Duration) -> WindowSpec:
    """Require the absence of an event for a duration (s): a number, or a formula such as `G - 2R`."""
    if isinstance(duration_s, str):
        return formula("negative", duration_s, "0", duration_s)
    return WindowSpec("absence", {"wait_s": duration_s})


@computed_by(Formula("negative", "wait", "-2slack", "wait", {"wait": "wait_s"}), "absence_from_before")
def absence_including_anchor(seconds: float) -> WindowSpec:
    """Require the absence of an event for some time (s), and also just before the anchor.

    An event that follows the anchor at once is thus not lost in the slack, whichever of two watches is ahead.
    """
    return WindowSpec("absence_from_before", {"wait_s": seconds})
