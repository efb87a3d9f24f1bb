"""Allowed intervals that remember their arithmetic, computed from the running configuration."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from harness.model import clocks
from harness.model.cluster import RENEW_JITTER, Calibration, Configuration
from harness.model.history import Entry, History

Json = Any
Shape = Literal["period", "within", "negative"]
BASE_SLACK_S = 0.2
"""What a controller may take between waking up and writing, on an idle host."""
TAINT_PASS_S = 1.0
"""An empty rate-limited queue is served each 100 ms (NodeEvictionPeriod); with its writes, well below 1 s."""
BIND_S = 15.0
"""An unschedulable pod is retried when its node changes, after at most 10 s (podMaxBackoffSeconds)."""

POD_GC_S = 20.0
"""gcCheckPeriod of the pod garbage collector, compiled in (pkg/controller/podgc/gc_controller.go)."""
RECOVERY_S = 60.0
"""Beyond the healing itself: a kubelet notices a dead connection after its HTTP/2 read-idle and ping
time-outs, then backs off.
"""


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


@dataclass(frozen=True)
class Span:
    """Times (s, monotonic) from one to another, or one time."""

    since_t: float
    until_t: float

    @classmethod
    def at(cls, t: float) -> Span:
        """One time."""
        return cls(t, t)

    def touches(self, other: Span) -> bool:
        """Whether they have a time in common."""
        return self.since_t <= other.until_t and other.since_t <= self.until_t


def hull(spans: Sequence[Span]) -> Span:
    """From the earliest to the latest of these times; there is at least one."""
    return Span(min(span.since_t for span in spans), max(span.until_t for span in spans))


def slack_s(history: History, configuration: Configuration, about: Sequence[Span] | None = None) -> float:
    """What measuring on this host may add to a true duration (s) that was read off at the times `about`;
    anywhere in the recording where none are told.

    Base plus twice the worst watch latency (calibrated, or seen by a sentinel: one for the anchor, one for
    the event), how wrong the offsets of nodes' clocks may be, the API's resolution, the longest time the
    harness was not woken, and how wrong the times of witnesses on the nodes may be. Of sentinels and stalls
    count those that can have touched these times.
    """
    calibration = configuration.calibration
    told = max((entry.data["error_s"] for entry in history.of_kind("heard")), default=0.0)
    return (
        BASE_SLACK_S
        + 2 * max(calibration.watch_latency_s, _worst(map(_sentinel, history.of_kind("sentinel")), about))
        + _clock_error_s(history, calibration)
        + calibration.api_resolution_s
        + _worst(map(_stall, history.of_kind("stall")), about)
        + told
        + _clock_step_s(history)
    )


NEAR_S = 2.0
"""What stood still has to catch up: so long before and after, a measurement counts too."""


def _sentinel(entry: Entry) -> tuple[Span, float]:
    """From when a sentinel was sent first until it was back or given up, and its worst latency (s)."""
    worst = max((entry.data.get("latency_s") or {}).values(), default=0.0)
    since_t = min((entry.data.get("sent_t") or {}).values(), default=entry.t - worst)
    return Span(since_t, entry.t), worst


def _stall(entry: Entry) -> tuple[Span, float]:
    """The time for which the harness was not woken, and its length (s)."""
    late_s = float(entry.data["late_s"])
    return Span(entry.t - late_s, entry.t), late_s


def _worst(measured: Iterable[tuple[Span, float]], about: Sequence[Span] | None) -> float:
    """The longest of what was measured that can have touched `about`.

    Between two measurements nobody looked: what happened there is vouched for by those near it on both sides,
    and by one on each side at least.
    """
    everything = list(measured)
    if about is None:
        return max((took for _span, took in everything), default=0.0)
    worst = 0.0
    for span in about:
        near = Span(span.since_t - NEAR_S, span.until_t + NEAR_S)
        within = [took for seen, took in everything if seen.touches(near)]
        before = [took for seen, took in everything if seen.until_t < span.since_t]
        after = [took for seen, took in everything if seen.since_t > span.until_t]
        worst = max([worst, *within, *before[-1:], *after[:1]])
    return worst


def _clock_error_s(history: History, calibration: Calibration) -> float:
    """What is not known of nodes' clocks (s); all of it in a recording that did not measure them."""
    measured = clocks.error_s(history)
    told = calibration.clock_offset_s.values()
    return max(map(abs, told), default=0.0) if measured is None else measured


def _clock_step_s(history: History) -> float:
    """How far the host's wall clock was moved during the recording (s): renewTimes are read on it."""
    ended = history.of_kind("ended")
    began_at, ended_at = (
        history.begun.get("wall_offset_s"),
        ended[-1].data.get("wall_offset_s") if ended else None,
    )
    return abs(ended_at - began_at) if began_at is not None and ended_at is not None else 0.0


def compute(spec: WindowSpec, ground: Ground, anchor: Mapping[str, Json]) -> Window:
    """Compute a window by name; `anchor` is what the anchor's occurrence tells of itself.

    Raises KeyError on a window that this version does not know.
    """
    return _WINDOWS[spec.name](ground, spec.args, anchor)


def detection() -> WindowSpec:
    """From the last heartbeat to Ready=Unknown (pkg/controller/nodelifecycle: monitorNodeHealth)."""
    return WindowSpec("detection")


def detection_from_fault() -> WindowSpec:
    """From the cut to Ready=Unknown: part of the grace period may have passed since the last heartbeat."""
    return WindowSpec("detection_from_fault")


def taint_pass() -> WindowSpec:
    """From Ready=Unknown to the NoExecute taint, for the first node of a healthy zone.

    A pass of the tainter whose cache has not got the condition yet drops the node and has used the token: the
    next monitor pass asks again, and the bucket has a token 1/E after the first (doNoExecuteTaintingPass in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).
    """
    return WindowSpec("taint_pass")


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


def afterwards(bound_s: float) -> WindowSpec:
    """Not before the anchor, and within a bound; both must be told by the same clock."""
    return WindowSpec("afterwards", {"bound_s": bound_s})


def grace_period(seconds: float) -> WindowSpec:
    """From SIGTERM to the end of a container that is deaf to it: its grace period, or up to half of it more.

    The kubelet itself gives a runtime so much longer (pkg/kubelet/pod_workers.go: killPodNow).
    """
    return WindowSpec("grace_period", {"grace_s": seconds})


def absence(seconds: float) -> WindowSpec:
    """How long something must not come."""
    return WindowSpec("absence", {"wait_s": seconds})


def _detection(ground: Ground, _args: Mapping[str, Json], anchor: Mapping[str, Json]) -> Window:
    grace, period = _grace(ground), ground.configuration.node_monitor_period_s
    passes = 3 if anchor.get("heartbeat") == "status" else 2
    high = grace + passes * period + ground.slack_s
    formula = f"G + {passes}P + slack ({grace:g} + {passes * period:g} + {ground.slack_s:.2f})"
    error = float(anchor.get("error_s", 0.0))
    low = f"G - clock ({grace:g} - {error:.3f})" if error else "G"
    return Window(grace - error, high, grace, "period", low, formula)


def _detection_from_fault(ground: Ground, _args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    grace, period = _grace(ground), ground.configuration.node_monitor_period_s
    renew = ground.configuration.renew_interval_s * (1 + RENEW_JITTER)
    high = grace + 3 * period + ground.slack_s
    formula = f"G + 3P + slack ({grace:g} + {3 * period:g} + {ground.slack_s:.2f})"
    low = grace - renew - ground.slack_s
    return Window(
        low,
        high,
        grace,
        "period",
        f"G - 1.04R - slack ({grace:g} - {renew:g} - {ground.slack_s:.2f})",
        formula,
    )


def _taint_pass(ground: Ground, _args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    rate, period = ground.configuration.eviction_rate, ground.configuration.node_monitor_period_s
    again = max(period, 1 / rate if rate else float("inf"))
    nominal = again + TAINT_PASS_S
    formula = f"max(P, 1/E) + 1 + slack ({again:g} + {TAINT_PASS_S:g} + {ground.slack_s:.2f})"
    return Window(-ground.slack_s, nominal + ground.slack_s, nominal, "within", "-slack", formula)


def _monitor_pass(ground: Ground, _args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    period = ground.configuration.node_monitor_period_s
    nominal = period + TAINT_PASS_S
    formula = f"P + 1 + slack ({period:g} + {TAINT_PASS_S:g} + {ground.slack_s:.2f})"
    return Window(-ground.slack_s, nominal + ground.slack_s, nominal, "within", "-slack", formula)


def _prompt(ground: Ground, args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    bound = float(args["bound_s"])
    formula = f"bound + slack ({bound:g} + {ground.slack_s:.2f})"
    return Window(-ground.slack_s, bound + ground.slack_s, bound, "within", "-slack", formula)


def _recovery(ground: Ground, _args: Mapping[str, Json], anchor: Mapping[str, Json]) -> Window:
    healing = float(anchor.get("healing_took_s", 0.0))
    bound = healing + RECOVERY_S
    formula = f"healing + bound + slack ({healing:.2f} + {RECOVERY_S:g} + {ground.slack_s:.2f})"
    return Window(0.0, bound + ground.slack_s, bound, "within", "0", formula)


def _afterwards(ground: Ground, args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    bound = float(args["bound_s"])
    formula = f"bound + slack ({bound:g} + {ground.slack_s:.2f})"
    return Window(0.0, bound + ground.slack_s, bound, "within", "0", formula)


def _grace_period(ground: Ground, args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    grace = float(args["grace_s"])
    low, high = (
        f"T - slack ({grace:g} - {ground.slack_s:.2f})",
        f"1.5T + slack ({1.5 * grace:g} + {ground.slack_s:.2f})",
    )
    return Window(grace - ground.slack_s, 1.5 * grace + ground.slack_s, grace, "period", low, high)


def _toleration(ground: Ground, args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    return _around(float(args["toleration_s"]), ground.slack_s)


def _default_toleration(ground: Ground, _args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    return _around(ground.configuration.default_toleration_s, ground.slack_s)


def _around(nominal: float, slack: float) -> Window:
    low, high = f"T - slack ({nominal:g} - {slack:.2f})", f"T + slack ({nominal:g} + {slack:.2f})"
    return Window(nominal - slack, nominal + slack, nominal, "period", low, high)


def _renewals(ground: Ground, _args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    renew = ground.configuration.renew_interval_s
    high = renew * (1 + RENEW_JITTER) + ground.slack_s
    formula = f"1.04R + slack ({renew * (1 + RENEW_JITTER):g} + {ground.slack_s:.2f})"
    return Window(renew - 0.1, high, renew, "period", f"R - 0.1 ({renew:g} - 0.1)", formula)


def _absence(_ground: Ground, args: Mapping[str, Json], _anchor: Mapping[str, Json]) -> Window:
    wait = float(args["wait_s"])
    return Window(0.0, wait, wait, "negative", "0", f"wait ({wait:g})")


def _grace(ground: Ground) -> float:
    return ground.configuration.node_monitor_grace_period_s


_WINDOWS = {
    "detection": _detection,
    "detection_from_fault": _detection_from_fault,
    "taint_pass": _taint_pass,
    "monitor_pass": _monitor_pass,
    "prompt": _prompt,
    "recovery": _recovery,
    "afterwards": _afterwards,
    "grace_period": _grace_period,
    "toleration": _toleration,
    "default_toleration": _default_toleration,
    "renewals": _renewals,
    "absence": _absence,
}
