"""A scenario's session: its needs, expectations, late events, and the labs of a worker."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nodeproof.checks import moments
from nodeproof.checks.settings import default_of
from nodeproof.labs.client.handle import InUse, LabHandle
from nodeproof.model import window as windows
from nodeproof.model.claim import ReportedBug
from nodeproof.model.judgment import Check
from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.window import WindowContext, WindowSpec, compute, longer
from nodeproof.scenario.expectations import Expectation
from nodeproof.scenario.lab import check_not_due
from nodeproof.scenario.node import Node
from nodeproof.session.judging import close
from nodeproof.session.provider import (
    LabOpener,
    LabProvider,
    LabRequirements,
    OwnLab,
    Settling,
    SharedZone,
    WorkerLab,
)
from nodeproof.session.sharing import Retries, Retry, SharedLab, Throttle
from tests.fakes import fake_lab
from tests.unit.histories import CUT_T, GRACE_S, configuration, partition
from tests.unit.sample_checks import CLAIM, UNKNOWN
from tests.waiting import throughout

# Needs of a scenario: a misspelt one is never ignored


def test_needs_are_parsed() -> None:
    options = {"nodes": 3, "faulted": 1, "zones": 2, "features": ("swap", "systemd"), "profile": "documented"}
    assert Needs.of(options, "here") == Needs(3, 1, 2, frozenset({"swap", "systemd"}), "documented")
    assert Needs.of({}, "here") == Needs()


def test_zones_may_differ_in_size_and_each_lose_nodes() -> None:
    needs = Needs.of({"nodes": (20, 3), "faulted": (11, 2), "radius": "zone"}, "here")
    assert (needs.nodes, needs.zones, needs.spread) == (23, 2, (20, 3))
    assert (needs.faulted, needs.faulted_in) == (13, (11, 2))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"faultd": 1}, "has no argument 'faultd'"),
        ({"capabilities": ("systemd",)}, "has no argument 'capabilities'"),
        ({"features": ("sytemd",)}, "unknown feature 'sytemd'"),
        ({"features": "systemd"}, "features is 'systemd'"),
        ({"features": 1}, "features is 1"),
        ({"features": ([],)}, "unknown feature"),
        ({"nodes": "2"}, "nodes is '2'"),
        ({"nodes": 0}, "nodes is 0"),
        ({"faulted": True}, "faulted is True"),
        ({"faulted": -1}, "faulted is -1"),
        ({"profile": 1}, "profile is 1"),
        ({"duration_s": "2G +"}, "duration_s is '2G \\+'"),
        ({"duration_s": "2X"}, "no symbol X"),
        ({"duration_s": 20}, "duration_s is 20"),
        ({"nodes": (20, 0)}, "nodes is 0"),
        ({"nodes": (20, 3), "zones": 3}, "zones is 3"),
        ({"nodes": 4, "faulted": (1, 1)}, "zones is 1"),
        ({"spread": (20, 3)}, "has no argument 'spread'"),
        ({"isolation": "node"}, "isolation is 'node'"),
    ],
)
def test_unknown_need_is_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(Problem, match=message) as refused:
        Needs.of(options, "test_it.py::test_it")
    assert "test_it.py::test_it" in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "is_alone"),
    [
        ({}, False),
        ({"nodes": 3, "faulted": 2}, False),
        ({"isolation": "cluster"}, True),
        ({"components": ("etcd",)}, True),
        ({"radius": "zone"}, True),
        ({"zones": 2}, True),
    ],
)
def test_scenario_that_affects_more_than_a_zone_runs_alone(options: dict[str, Any], is_alone: bool) -> None:
    assert Needs.of(options, "here").is_alone is is_alone


# Expectations register their checks before they wait


NODE = Node("node-1")
TAINT = NODE.taint("node.kubernetes.io/unreachable", "NoExecute")
MARGIN_S = 2.0
CONTEXT = WindowContext(configuration(), 0.3)


@dataclass
class Calls:
    """What an expectation registered and waited for, in order."""

    of: list[tuple[str, Check]] = field(default_factory=list)

    def register(self, claim: str, check: Check) -> None:
        self.of.append((f"register {claim}", check))

    def wait(self, check: Check) -> None:
        self.of.append(("wait", check))


def expectation(calls: Calls, window: WindowSpec | None = None) -> Expectation:
    return Expectation("a.claim", window, None, MARGIN_S, calls.register, calls.wait)


def test_event_is_awaited_as_long_as_a_known_bug_may_delay_it() -> None:
    calls, bug = Calls(), ReportedBug("a/b#1", ">=1.30", windows.absence_for("3P"))
    reported_claim = replace(expectation(calls), reported=bug)
    check = reported_claim.expect(TAINT.added, within=windows.taint_pass(), after=NODE.unknown)
    deviation = TAINT.added.never_after(NODE.unknown, bug.window)
    assert calls.of == [("register a.claim", check), ("wait", check), ("wait", deviation)]


def test_expectation_is_registered_before_the_wait() -> None:
    calls = Calls()
    check = expectation(calls).expect(TAINT.added, within=windows.taint_pass(), after=NODE.unknown)
    assert check == TAINT.added.after(NODE.unknown, windows.taint_pass())
    assert calls.of == [("register a.claim", check), ("wait", check)]


def test_expect_later_does_not_wait() -> None:
    calls, check = Calls(), default_of("grace")
    assert expectation(calls).expect_later(check) == check
    assert calls.of == [("register a.claim", check)]


def test_window_of_the_claim_is_the_default() -> None:
    calls, window = Calls(), windows.up_to(3)
    expectation(calls, window).expect(TAINT.removed, after=NODE.ready)
    assert calls.of[0][1] == TAINT.removed.after(NODE.ready, window)


def test_missing_window_or_anchor_is_a_problem() -> None:
    with pytest.raises(Problem, match="has no window"):
        expectation(Calls()).expect(TAINT.added, after=NODE.unknown)
    with pytest.raises(Problem, match="has no anchor"):
        expectation(Calls(), windows.up_to(3)).expect(TAINT.added)


PASS = windows.formula("negative", "P + 1", "P", "P + 1")


@pytest.mark.parametrize("window", [windows.absence(5), windows.absence_including_anchor(5), PASS])
def test_absence_is_awaited_for_longer_than_it_is_judged(window: WindowSpec) -> None:
    calls = Calls()
    judged = expectation(calls).never(TAINT.added, throughout=window, after=NODE.ready)
    (_, registered), (_, awaited) = calls.of
    assert judged == registered == TAINT.added.never_after(NODE.ready, window)
    own, extended = (
        compute(WindowSpec.from_json(check.args["window"]), CONTEXT, {}) for check in (judged, awaited)
    )
    assert (extended.low_s, extended.high_s) == (own.low_s, own.high_s + MARGIN_S)


def test_only_absences_have_longer_windows() -> None:
    with pytest.raises(ValueError, match="is not the window of an absence"):
        longer(windows.taint_pass(), MARGIN_S)


# A scenario left behind by a slow host proves nothing and is retried


SINCE, CHANGE = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
HELD_S = 5.0


def check(healed_s: float, due_s: float) -> None:
    """Check a scenario whose fault was healed `healed_s` after its injection."""
    story = partition().fault(CUT_T + healed_s, "healing")
    check_not_due(story.history(), UNKNOWN, CHANGE, SINCE, due_s)


@pytest.mark.parametrize("due_s", [GRACE_S - 3.0, GRACE_S - 1.5])
def test_scenario_too_late_to_change_an_event_is_too_loaded(due_s: float) -> None:
    with pytest.raises(HostTooLoaded, match="may have been due before"):
        check(healed_s=GRACE_S, due_s=due_s)


def test_change_in_time_is_left_to_the_judgment() -> None:
    check(healed_s=HELD_S, due_s=HELD_S)


def test_event_before_its_due_time_is_left_to_the_judgment() -> None:
    check(healed_s=900.0, due_s=800.0)


@pytest.mark.parametrize(
    ("broken", "code"),
    [("HostTooLoaded: it occurred before", "host-too-loaded"), ("Problem: it occurred before", "gap")],
)
def test_claims_of_a_late_scenario_are_too_loaded(broken: str, code: str) -> None:
    closed = close([CLAIM], [], partition().history(), configuration(), broken)
    assert [verdict.code for _claim, verdict in closed.verdicts()] == [code]


# Watches that must return after an API server's restart, unless their client has left


ANYTHING, A_RESTART = Needs(), Needs(components=("kube-apiserver",))


class CountedApi:
    """An API server that counts some watches of Pods."""

    def __init__(self) -> None:
        self.pods = 4

    def text(self, _path: str) -> str:
        labels = 'group="",resource="pods",scope="cluster",verb="WATCH"'
        return f"apiserver_longrunning_requests{{{labels}}} {self.pods}\n"


def lab_of(api: CountedApi) -> LabHandle:
    return fake_lab({"name": "p-1", "zone": "", "cluster.api": api})


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.session.provider._TIMEOUT_S", 0.0)


@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize(
    ("scenarios", "message"),
    [
        ([(A_RESTART, 3)], "do not watch again: /pods"),
        ([(ANYTHING, 5), (A_RESTART, 4)], ""),
        ([(ANYTHING, 0)], ""),
    ],
    ids=["watched before a restart", "left before a restart", "no restart"],
)
def test_watcher_before_a_restart_must_watch_again(
    scenarios: Sequence[tuple[Needs, int]], message: str
) -> None:
    api = CountedApi()
    settling = Settling(lab_of(api))
    for needs, watches in scenarios:
        settling.begin(needs)
        api.pods = watches
        with pytest.raises(Problem, match=message) if message else nullcontext():
            settling.end()


# The labs that a worker holds: its own lab, and a zone of the shared lab or a lab in its place


TIMEOUT_S, WAITING_S = 10.0, 1.2
SIZE, LARGE = Size(nodes=3, zones=1), Size(nodes=4, zones=1)


class Labs(LabOpener):
    """Opens labs without machines; `log` has what happened to them."""

    has_zones = True
    free_zones = 1
    is_zone_usable = True

    def __init__(self, run: Path) -> None:
        self.run = run
        self.log: list[str] = []

    def open(self, size: Size) -> WorkerLab:
        handle = self._handle("", {"down": self._logs("lab ended"), "tidy": self._logs("lab left")})
        return OwnLab(handle, size, self.run, self.log.append)

    def lease_zone(self) -> WorkerLab:
        if not self.free_zones:
            raise InUse("every zone is in use", "lab p-1", "use fewer workers")
        self.free_zones -= 1
        parts = {
            "close": self._logs("zone given back"),
            "leases.is_last": bool,
            "leases.disable_zone": self._logs("zone excluded"),
        }
        shared = SharedLab(self.run, lambda: self._handle("", {}))
        return SharedZone(self._handle("zone-a", parts), SIZE, self.run, self.log.append, shared=shared)

    def get_ready(self, lab: WorkerLab) -> None:
        if lab.part == "zone" and not self.is_zone_usable:
            raise Problem("nodes not ready", "lab p-1", "see its logs")
        self.log.append(f"{lab.part} ready")
        lab.is_ready = True

    def _logs(self, line: str) -> Callable[[], None]:
        return partial(self.log.append, line)

    def _handle(self, zone: str, parts: Mapping[str, object]) -> LabHandle:
        common = {
            "name": "p-1",
            "zone": zone,
            "is_prepared": False,
            "life.full_parts": list,
            "life.has_control_plane": lambda: True,
            # Such a lab cannot be resized.
            "safety.injector.quarantined": {"node-1"},
            "copy_logs": lambda _into: None,
            "fetch_journals": lambda: None,
            "tidy": lambda: None,
        }
        return fake_lab({**common, **parts})


def lab_requirements(size: Size = SIZE, *, is_alone: bool = False) -> LabRequirements:
    return LabRequirements(Needs(), size, is_alone)


@pytest.fixture
def labs(tmp_path: Path) -> Labs:
    return Labs(tmp_path)


@pytest.fixture
def retries(tmp_path: Path) -> Retries:
    return Retries(tmp_path)


@pytest.fixture
def provider(labs: Labs, retries: Retries, tmp_path: Path) -> LabProvider:
    return LabProvider(labs, Throttle(tmp_path, "a", 0), retries, labs.log.append)


def test_discarding_a_lab_does_not_block_starting_one(labs: Labs, retries: Retries, tmp_path: Path) -> None:
    running, starter = (Throttle(tmp_path, name, 4, read_pressure=lambda: 1.0) for name in "ab")
    running.start_scenario(lambda _line: None)
    started = threading.Event()

    def start() -> None:
        with starter.lab_start():
            started.set()

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert throughout(lambda: not started.is_set(), WAITING_S)
    LabProvider(labs, running, retries, print).discard()
    assert started.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)


def test_lab_whose_scenario_will_be_retried_is_kept_and_used_again(
    labs: Labs, provider: LabProvider, retries: Retries
) -> None:
    own = provider.get(lab_requirements(is_alone=True))
    retries.add_own(Retry("test_it", 1))
    zone = provider.get(lab_requirements())
    assert labs.log == ["lab ready", "lab left", "zone ready"]
    assert provider.get(lab_requirements(is_alone=True)) is own
    assert provider.get(lab_requirements()) is zone
    provider.end()
    assert labs.log[3:] == ["lab left", "lab ended", "zone given back"]


def test_lab_without_a_retry_ends_before_a_zone_is_used(labs: Labs, provider: LabProvider) -> None:
    provider.reserve_zone()
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements())
    assert (labs.log, labs.free_zones) == (["lab ready", "lab ended", "zone ready"], 0)


def test_lab_of_another_size_is_replaced_if_it_cannot_be_resized(labs: Labs, provider: LabProvider) -> None:
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements(is_alone=True))
    lab = provider.get(lab_requirements(LARGE, is_alone=True))
    assert (lab.size, labs.log) == (LARGE, ["lab ready", "lab ended", "lab ready"])


def test_lab_in_place_of_a_zone_serves_all_scenarios(labs: Labs, provider: LabProvider) -> None:
    labs.free_zones = 0
    lab = provider.get(lab_requirements())
    assert labs.log == ["every zone is in use (lab p-1); starting a dedicated lab", "lab ready"]
    assert provider.get(lab_requirements()) is lab
    assert provider.get(lab_requirements(is_alone=True)) is lab


def test_unusable_zone_is_abandoned_for_a_lab(labs: Labs, provider: LabProvider) -> None:
    labs.is_zone_usable = False
    assert isinstance(provider.get(lab_requirements()), OwnLab)
    assert labs.log[1:] == ["zone excluded", "zone given back", "lab ready"]
