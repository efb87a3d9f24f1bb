"""Allowed intervals that remember their arithmetic, computed from the running configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from nodeproof.model.cluster import RENEW_JITTER, UPDATE_JITTER, Configuration
from nodeproof.model.symbols import SLACK, SYMBOLS
from nodeproof.model.term import Term

Json = Any
Shape = Literal["period", "within", "negative"]
BIND_S = 15.0
"""An unschedulable pod is retried when its node changes, after at most 10 s (podMaxBackoffSeconds)."""

POD_GC_S = 20.0
"""gcCheckPeriod of the pod garbage collector, compiled in (pkg/controller/podgc/gc_controller.go)."""

_MISREAD = "misread"
"""By how much times may have been read wrong (s)."""

QUARANTINE_S = 40.0
"""Its quarantineTime, in the same file: so long it leaves pods alone whose Node it misses."""


@dataclass(frozen=True)
class WindowSpec:
    """A window by name and arguments, stored beside a judgment so that today's code can compute it again."""

    name: str
    args: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> Mapping[str, Json]:
        """As stored in `judgments.json`."""
        return {"name": self.name, "args": dict(self.args)}

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> WindowSpec:
        """Read a stored window. Raises KeyError when it is not one."""
        return cls(data["name"], data["args"])


@dataclass(frozen=True)
class Window:
    """[low_s, high_s] after an anchor.

    `nominal_s` is the period or bound that the claim names. A `period` window must exclude its half and its
    double, a `within` window its double; else it proves nothing about the figure.
    """

    low_s: float
    high_s: float
    nominal_s: float
    shape: Shape
    low_arithmetic: str
    high_arithmetic: str

    @property
    def arithmetic(self) -> str:
        """For people: `[G, G + 2P + slack] = [12.00, 14.62] s`."""
        return f"[{self.low_arithmetic}, {self.high_arithmetic}] = [{self.low_s:.2f}, {self.high_s:.2f}] s"

    @property
    def discerning(self) -> bool:
        """Whether the window tells the claimed figure from its double and, for a period, from its half."""
        if self.shape == "negative":
            return self.high_s > 0
        if self.high_s >= 2 * self.nominal_s:
            return False
        return self.shape == "within" or self.low_s > self.nominal_s / 2

    def holds(self, value_s: float) -> bool:
        """Whether a measured time lies inside."""
        return self.low_s <= value_s <= self.high_s

    def to_json(self) -> Mapping[str, Json]:
        """As written to `verdicts.json`."""
        return {
            "low_s": round(self.low_s, 3),
            "high_s": round(self.high_s, 3),
            "nominal_s": self.nominal_s,
            "shape": self.shape,
            "arithmetic": self.arithmetic,
        }


@dataclass(frozen=True)
class Ground:
    """What a window is computed on: the running configuration, and the slack of this judgment (s)."""

    configuration: Configuration
    slack_s: float
    misread_s: float = 0.0
    """What of the slack is due to times that may have been read wrong: too late, and too early as well."""


@dataclass(frozen=True)
class Formula:
    """A window over symbols: the figure that is claimed, and both ends.

    `given` are the symbols that stand for an argument of the window, `told` those for what the anchor tells
    of itself (0 where it tells nothing).
    """

    shape: Shape
    nominal: str
    low: str
    high: str
    given: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)

    @property
    def symbols(self) -> frozenset[str]:
        """All that it is computed from. Raises ValueError where it is no formula."""
        return frozenset().union(*(Term.of(text).symbols for text in (self.nominal, self.low, self.high)))


def compute(spec: WindowSpec, ground: Ground, anchor: Mapping[str, Json]) -> Window:
    """Compute a window by name; `anchor` is what the anchor's occurrence tells of itself.

    Raises KeyError on a window or a symbol that this version does not know.
    """
    formula = _formula(spec, anchor)

    def lookup(symbol: str) -> float:
        if symbol in formula.given:
            return float(spec.args[formula.given[symbol]])
        if symbol in formula.told:
            return float(anchor.get(formula.told[symbol], 0.0))
        if symbol == _MISREAD:
            return ground.misread_s
        return ground.slack_s if symbol == SLACK else ground.configuration[symbol]

    nominal, low, high = (Term.of(text) for text in (formula.nominal, formula.low, formula.high))
    if ground.misread_s and formula.shape != "negative" and SLACK not in low.symbols:
        low = Term.of(f"{formula.low} - {_MISREAD}")
    return Window(
        low.value(lookup),
        high.value(lookup),
        nominal.value(lookup),
        formula.shape,
        low.arithmetic(lookup),
        high.arithmetic(lookup),
    )


def symbols_of(spec: WindowSpec) -> frozenset[str]:
    """What a window is computed from. Raises KeyError on a window that this version does not know."""
    formula = _formula(spec, {})
    return formula.symbols - formula.given.keys() - formula.told.keys()


def _formula(spec: WindowSpec, anchor: Mapping[str, Json]) -> Formula:
    if spec.name == "formula":
        return Formula(**spec.args)
    if spec.name == "detection":
        # A status heartbeat is looked at anew one pass later than a lease.
        passes = 3 if anchor.get("heartbeat") == "status" else 2
        low = "G - clock" if anchor.get("error_s") else "G"
        # The controller counts from when it sees it: a busy machine's may be under way for seconds.
        under_way = " + under_way" if anchor.get("under_way_s") else ""
        told = {"clock": "error_s", "under_way": "under_way_s"}
        return Formula("period", "G", low, f"G + {passes}P{under_way} + slack", told=told)
    return _FORMULAS[spec.name]


def detection() -> WindowSpec:
    """From the last heartbeat to Ready=Unknown (pkg/controller/nodelifecycle: monitorNodeHealth)."""
    return WindowSpec("detection")


def detection_from_fault() -> WindowSpec:
    """From the cut to Ready=Unknown: part of the grace period may have passed since the last heartbeat."""
    return WindowSpec("detection_from_fault")


def status_update() -> WindowSpec:
    """From a change of a Node's status to the kubelet's report of how it is: it compares each U, 4 % later at
    the most (pkg/kubelet/kubelet.go: JitterUntil), with a copy that lags a little.
    """
    return WindowSpec("status_update")


def taint_pass() -> WindowSpec:
    """From Ready=Unknown to the NoExecute taint, for the first node of a healthy zone.

    A pass of the tainter whose cache has not got the condition yet drops the node and has used the token: the
    next monitor pass asks again, and the bucket has a token 1/E after the first (doNoExecuteTaintingPass in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    """
    return WindowSpec("taint_pass")


def spacing() -> WindowSpec:
    """From one NoExecute taint of a zone to the next, where nodes wait for theirs: its bucket holds one
    token, and is looked at each 100 ms (pkg/controller/nodelifecycle/scheduler/rate_limited_queue.go:
    EvictionRateLimiterBurst, NodeEvictionPeriod).
    """
    return WindowSpec("spacing")


def secondary_spacing() -> WindowSpec:
    """The same in a large zone that is partially disrupted."""
    return WindowSpec("secondary_spacing")


def stopped() -> WindowSpec:
    """From the node that disrupts a small zone on: no NoExecute taint once a pass has seen it, for longer
    than the secondary rate would allow.
    """
    return WindowSpec("stopped")


def monitor_pass() -> WindowSpec:
    """From Ready=True to what the next pass of the node monitor does."""
    return WindowSpec("monitor_pass")


def prompt(bound_s: float) -> WindowSpec:
    """Within a bound that the claim names."""
    return WindowSpec("prompt", {"bound_s": bound_s})


def toleration(seconds: float) -> WindowSpec:
    """From the taint to the pod's deletion: its tolerationSeconds."""
    return WindowSpec("toleration", {"toleration_s": seconds})


def default_toleration() -> WindowSpec:
    """From the taint to the pod's deletion: what DefaultTolerationSeconds gave the pod."""
    return WindowSpec("default_toleration")


def renewals() -> WindowSpec:
    """From one lease renewal to the next."""
    return WindowSpec("renewals")


def recovery() -> WindowSpec:
    """From `healing`: how long a node may take to be Ready again; a wait, no claim.

    Not from `healed`: where healing is a boot, the node may have reported before the harness saw it up.
    """
    return WindowSpec("recovery")


def pod_gc_pass() -> WindowSpec:
    """Long enough for the pod garbage collector to have looked at everything once."""
    return absence(POD_GC_S + 2.0)


def quarantine() -> WindowSpec:
    """From a Node's removal to that of its pods: the collector misses the Node at its next pass, leaves them
    alone for its quarantine, and removes them at the pass after that (gcCheckPeriod and quarantineTime in
    pkg/controller/podgc/gc_controller.go). Only where `wait_out_orphans_quarantine` was done before: what is
    left of an earlier one shortens it.
    """
    return WindowSpec("quarantine")


def afterwards(bound_s: float) -> WindowSpec:
    """Not before the anchor, and within a bound; both must be told by the same clock."""
    return WindowSpec("afterwards", {"bound_s": bound_s})


def grace_period(seconds: float) -> WindowSpec:
    """From SIGTERM to the end of a container that is deaf to it: its grace period, or up to half of it more.

    The kubelet itself gives a runtime so much longer (pkg/kubelet/pod_workers.go: killPodNow).
    """
    return WindowSpec("grace_period", {"grace_s": seconds})


def formula(shape: Shape, nominal: str, low: str, high: str) -> WindowSpec:
    """A window of one's own, over the symbols of `nodeproof.model.symbols` and `slack`. Raises ValueError
    where it is no formula, or slack is where it may not be or not where it must; KeyError on a symbol that
    there is none of.
    """
    made = Formula(shape, nominal, low, high)
    if SLACK in Term.of(nominal).symbols:
        raise ValueError("slack in the figure that is claimed")
    if shape != "negative" and SLACK not in Term.of(high).symbols:
        raise ValueError(f"no slack in {high!r}: measuring may add some to a true duration")
    for symbol in made.symbols - {SLACK}:
        SYMBOLS[symbol]
    return WindowSpec("formula", {"shape": shape, "nominal": nominal, "low": low, "high": high})


def absence(seconds: float) -> WindowSpec:
    """How long something must not come."""
    return WindowSpec("absence", {"wait_s": seconds})


def absence_from_before(seconds: float) -> WindowSpec:
    """How long something must not come that does not come just before the anchor, either: what follows it at
    once is not lost in the slack, whichever of two watches is ahead.
    """
    return WindowSpec("absence_from_before", {"wait_s": seconds})


_UPDATE = f"{1 + UPDATE_JITTER:g}U"
_FORMULAS: Mapping[str, Formula] = {
    "detection_from_fault": Formula("period", "G", f"G - {1 + RENEW_JITTER:g}R - slack", "G + 3P + slack"),
    "status_update": Formula("within", _UPDATE, "-slack", f"{_UPDATE} + 1 + slack"),
    "taint_pass": Formula("within", "max(P, 1/E) + 1", "-slack", "max(P, 1/E) + 1 + slack"),
    "monitor_pass": Formula("within", "P + 1", "-slack", "P + 1 + slack"),
    "spacing": Formula("period", "1/E", "1/E - slack", "1/E + 0.6 + slack"),
    "secondary_spacing": Formula("period", "1/E2", "1/E2 - slack", "1/E2 + 0.6 + slack"),
    "stopped": Formula("negative", "1.15/E2", "P + 1", "P + 1 + 1.15/E2"),
    "prompt": Formula("within", "bound", "-slack", "bound + slack", {"bound": "bound_s"}),
    "recovery": Formula(
        "within", "healing + 60", "0", "healing + 60 + slack", told={"healing": "healing_took_s"}
    ),
    "quarantine": Formula(
        "period",
        f"{QUARANTINE_S + POD_GC_S:g}",
        f"{QUARANTINE_S:g} - slack",
        f"{QUARANTINE_S + 2 * POD_GC_S:g} + slack",
    ),
    "afterwards": Formula("within", "bound", "0", "bound + slack", {"bound": "bound_s"}),
    "grace_period": Formula("period", "T", "T - slack", "1.5T + slack", {"T": "grace_s"}),
    "toleration": Formula("period", "T", "T - slack", "T + slack", {"T": "toleration_s"}),
    "default_toleration": Formula("period", "T", "T - slack", "T + slack"),
    "renewals": Formula("period", "R", "R - 0.1", f"{1 + RENEW_JITTER:g}R + slack"),
    "absence": Formula("negative", "wait", "0", "wait", {"wait": "wait_s"}),
    "absence_from_before": Formula("negative", "wait", "-2slack", "wait", {"wait": "wait_s"}),
}
"""In `taint_pass` and `monitor_pass` 1 s is for a pass: an empty rate-limited queue is served each 100 ms
(NodeEvictionPeriod); with its writes, well below 1 s. In `spacing` 0.1 s are that, 0.5 s for a controller's
client, which may queue requests. In `recovery` 60 s are beyond the healing itself: a
kubelet notices a dead connection after its HTTP/2 read-idle and ping time-outs, then backs off.
"""
