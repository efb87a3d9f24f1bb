"""Shared parts of check tests: a claim, its context, moments, and one judgment."""

from __future__ import annotations

from nodeproof.checks import moments, observations
from nodeproof.checks.checks import run_check
from nodeproof.checks.settings import default_of
from nodeproof.checks.timing import renewals_of
from nodeproof.model import window as windows
from nodeproof.model.claim import Claim, Constant
from nodeproof.model.cluster import UNREACHABLE
from nodeproof.model.history import History
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict
from nodeproof.model.window import WindowContext
from tests.unit.histories import CUT_T, NAMESPACE, NODE, POD, RENEW_S, TOLERATION_S, Story, configuration

GRACE = Constant(
    "node-monitor-grace-period",
    "kube-controller-manager",
    "NodeLifecycleController.NodeMonitorGracePeriod",
    "node-monitor-grace-period",
    "s",
    (("<1.32", 40.0), (">=1.32", 50.0)),
    40.0,
    "defaults.go",
)
CLAIM = Claim(
    "a.b", "a", "It is so.", "timing", "control-plane", ">=1.18", {"v1.28": True}, (GRACE,), ("source",)
)
GROUND = WindowContext(configuration(), 0.3)
UNKNOWN = moments.condition_became(NODE, "Ready", "Unknown")
READY = moments.condition_became(NODE, "Ready", "True")
TAINTED = moments.taint_added(NODE, UNREACHABLE, "NoExecute")
DELETION = moments.pod_deletion(NAMESPACE, POD)
CUT = moments.fault_step("cut", "injected")
HEALING = moments.fault_step("cut", "healing")
DETECTION = UNKNOWN.after(moments.last_heartbeat(NODE, UNKNOWN), windows.detection())
FROM_FAULT = UNKNOWN.after(CUT, windows.detection_from_fault())
TAINT = TAINTED.after(UNKNOWN, windows.taint_pass())
EVICTION = DELETION.after(TAINTED, windows.toleration(TOLERATION_S))
STAYS = DELETION.never_after(READY, windows.absence(5.0))
RENEWALS = renewals_of(NODE, windows.renewals(), at_least=5)
DEFAULT = default_of("node-monitor-grace-period")
SHOWN = observations.shown_throughout(
    "status", POD, "Terminating", DELETION, moments.pod_removed(NAMESPACE, POD)
)


def run(check: Check, story: Story | History, ground: WindowContext = GROUND) -> Verdict:
    history = story.history() if isinstance(story, Story) else story
    return run_check(check, history, ground, CLAIM)


def assert_verdict(verdict: Verdict, label: str, *words: str) -> None:
    assert verdict.label == label, verdict
    for word in words:
        assert word in verdict.reason


# after


def silent(until_t: float, *, back: bool = False) -> Story:
    """Record an undetected partition."""
    story = Story().renewals(2.5, CUT_T).fault(CUT_T, "planned", "armed", "injected")
    if back:
        story.renewals(until_t - 10, until_t)
    return story.fence(until_t + 1)


def recovered(evicted_t: float | None = None, is_watched: bool = True) -> Story:
    """Record a node that recovers at 30 s, with its pod."""
    story = Story().pod(1.0, node=NODE).fault(2.0, "planned", "armed", "injected")
    story.condition(20.0, "Unknown")
    story.taint(20.1)
    if evicted_t is not None and evicted_t < 30.0:
        story.evict(evicted_t)
    story.condition(30.0, "True")
    story.untaint(30.5)
    if evicted_t is not None and evicted_t >= 30.0:
        story.evict(evicted_t, is_watched=is_watched)
    return story


def renewing(period_s: float = RENEW_S * 1.02, until_t: float = 20.0) -> Story:
    return Story().renewals(0.9, until_t, period_s=period_s)
