"""One pytest session: the markers of scenarios, a scenario from set-up to verdict, and workers."""

from __future__ import annotations

import importlib.util
import json
import sys
import textwrap
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import catalogue, proc
from nodeproof.checks import moments
from nodeproof.checks.settings import default_of
from nodeproof.labs.client.handle import InUse, LabHandle
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.machines.machine import MachineError
from nodeproof.model import window as windows
from nodeproof.model.claim import ReportedBug
from nodeproof.model.judgment import Check
from nodeproof.model.needs import Needs
from nodeproof.model.overrides import NO_OVERRIDES
from nodeproof.model.plan import Size
from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.model.window import WindowContext, WindowSpec, compute, longer
from nodeproof.plugin import Judge
from nodeproof.report import rundir
from nodeproof.scenario import Fault, Lab, faults, kubelet_settings, needs, standing, swap, volumes
from nodeproof.scenario import partition as partition_fault
from nodeproof.scenario.lab import Expectation, Node, check_not_due, check_still_to_come
from nodeproof.session import markers
from nodeproof.session import provider as providers
from nodeproof.session.judging import close
from nodeproof.session.options import Options
from nodeproof.session.sharing import Retries, Retry, SharedLab, Throttle
from tests.fakes import fake_lab
from tests.unit.histories import CUT_T, GRACE_S, configuration, partition
from tests.unit.sample_checks import CLAIM, UNKNOWN
from tests.unit.test_plan import TIMEOUT_S, WAITING_S, start_lab, throttle
from tests.waiting import throughout

# A scenario's session: its needs, expectations, late events, and the labs of a worker.


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


Calls = list[tuple[str, Check]]
"""What an expectation registered and waited for, in order."""


def expectation(calls: Calls, window: WindowSpec | None = None) -> Expectation:
    def register(claim: str, check: Check) -> None:
        calls.append((f"register {claim}", check))

    return Expectation(
        "a.claim", window, None, MARGIN_S, register, lambda check: calls.append(("wait", check))
    )


def test_expectation_is_registered_before_the_wait() -> None:
    calls = Calls()
    check = expectation(calls).expect(TAINT.added, within=windows.taint_pass(), after=NODE.unknown)
    assert check == TAINT.added.after(NODE.unknown, windows.taint_pass())
    assert calls == [("register a.claim", check), ("wait", check)]


def test_event_is_awaited_as_long_as_a_known_bug_may_delay_it() -> None:
    calls, bug = Calls(), ReportedBug("a/b#1", ">=1.30", windows.absence("3P"))
    reported_claim = replace(expectation(calls), reported=bug)
    reported_claim.expect(TAINT.added, within=windows.taint_pass(), after=NODE.unknown)
    assert calls[2:] == [("wait", TAINT.added.never_after(NODE.unknown, bug.window))]


def test_expect_later_does_not_wait() -> None:
    calls, check = Calls(), default_of("grace")
    assert expectation(calls).expect_later(check) == check
    assert calls == [("register a.claim", check)]


def test_window_of_the_claim_is_the_default() -> None:
    window = windows.up_to(3)
    check = expectation(Calls(), window).expect(TAINT.removed, after=NODE.ready)
    assert check == TAINT.removed.after(NODE.ready, window)


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
    (_, registered), (_, awaited) = calls
    assert judged == registered == TAINT.added.never_after(NODE.ready, window)
    specs = [WindowSpec.from_json(check.args["window"]) for check in (judged, awaited)]
    own, extended = (compute(spec, CONTEXT, {}) for spec in specs)
    assert (extended.low_s, extended.high_s) == (own.low_s, own.high_s + MARGIN_S)


def test_only_absences_have_longer_windows() -> None:
    with pytest.raises(ValueError, match="is not the window of an absence"):
        longer(windows.taint_pass(), MARGIN_S)


# A scenario left behind by a slow host proves nothing and is retried


SINCE, CHANGE = moments.fault_step("cut", "injected"), moments.fault_step("cut", "healing")
HELD_S = 5.0


def test_too_few_remaining_events_are_too_loaded() -> None:
    history, missing = partition().history(), moments.created("nodes", "absent")
    check_still_to_come(history, [UNKNOWN, missing], 1)
    with pytest.raises(HostTooLoaded, match="1 of 2 events are still to come, 2 are needed"):
        check_still_to_come(history, [UNKNOWN, missing], 2)


@pytest.mark.parametrize(
    ("healed_s", "due_s", "is_late"),
    [(GRACE_S, GRACE_S - 1.5, True), (HELD_S, HELD_S, False), (900.0, 800.0, False)],
    ids=["perhaps late", "in time", "event before its due time"],
)
def test_scenario_too_late_for_a_change_is_too_loaded(healed_s: float, due_s: float, is_late: bool) -> None:
    history = partition().fault(CUT_T + healed_s, "healing").history()
    with pytest.raises(HostTooLoaded, match="may have been due before") if is_late else nullcontext():
        check_not_due(history, UNKNOWN, CHANGE, SINCE, due_s)


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
    [([(A_RESTART, 3)], "watch again: /pods"), ([(ANYTHING, 5), (A_RESTART, 4)], ""), ([(ANYTHING, 0)], "")],
    ids=["watched before a restart", "left before a restart", "no restart"],
)
def test_each_watcher_must_watch_again_after_a_restart(
    scenarios: Sequence[tuple[Needs, int]], message: str
) -> None:
    api = CountedApi()
    settling = providers.Settling(lab_of(api))
    for required, watches in scenarios:
        settling.begin(required)
        api.pods = watches
        with pytest.raises(Problem, match=message) if message else nullcontext():
            settling.end()


# The labs that a worker holds: its own lab, and a zone of the shared lab or a lab in its place


SIZE, LARGE = Size(nodes=3, zones=1), Size(nodes=4, zones=1)


class Labs(providers.LabOpener):
    """Opens labs without machines; `log` has what happened to them."""

    has_zones = True
    free_zones = 1
    is_zone_usable = True

    def __init__(self, run: Path) -> None:
        self.run = run
        self.log: list[str] = []

    def open(self, size: Size) -> providers.WorkerLab:
        handle = self._handle("", {"down": self._logs("lab ended"), "tidy": self._logs("lab left")})
        return providers.OwnLab(handle, size, self.run, self.log.append)

    def lease_zone(self) -> providers.WorkerLab:
        if not self.free_zones:
            raise InUse("every zone is in use", "lab p-1", "use fewer workers")
        self.free_zones -= 1
        parts = {
            "close": self._logs("zone given back"),
            "leases.is_last": bool,
            "leases.disable_zone": self._logs("zone excluded"),
        }
        shared = SharedLab(self.run, lambda: self._handle("", {}))
        handle = self._handle("zone-a", parts)
        return providers.SharedZone(handle, SIZE, self.run, self.log.append, shared=shared)

    def get_ready(self, lab: providers.WorkerLab) -> None:
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


def lab_requirements(size: Size = SIZE, *, is_alone: bool = False) -> providers.LabRequirements:
    return providers.LabRequirements(Needs(), size, is_alone)


@pytest.fixture
def labs(tmp_path: Path) -> Labs:
    return Labs(tmp_path)


@pytest.fixture
def retries(tmp_path: Path) -> Retries:
    return Retries(tmp_path)


@pytest.fixture
def provider(labs: Labs, retries: Retries, tmp_path: Path) -> providers.LabProvider:
    return providers.LabProvider(labs, Throttle(tmp_path, "a", 0), retries, labs.log.append)


def test_discarding_a_lab_does_not_block_starting_one(labs: Labs, retries: Retries, tmp_path: Path) -> None:
    running, starter = (throttle(tmp_path, name) for name in "ab")
    running.start_scenario(lambda _line: None)
    may_end = threading.Event()
    started = start_lab(starter, may_end)
    assert throughout(lambda: not started.is_set(), WAITING_S)
    providers.LabProvider(labs, running, retries, print).discard()
    assert started.wait(TIMEOUT_S)
    may_end.set()


def test_attached_cluster_may_be_unreachable_for_a_while(tmp_path: Path) -> None:
    errors: list[Exception] = [MachineError("no answer"), Problem("a component died", "p-1", "see its log")]

    def clean(_needs: Needs) -> None:
        if errors:
            raise errors.pop(0)

    parts = {"clean": clean, "configuration": {"E": 1.0}, "out_of_service": {}}
    handle = fake_lab({"name": "p-1", "zone": "", **parts})
    lab = providers.AttachedLab(handle, SIZE, tmp_path, print)
    with pytest.raises(Problem, match="died"):
        lab.clean(lab_requirements())
    lab.clean(lab_requirements())
    assert errors == []


def test_lab_of_a_scenario_to_retry_is_kept(
    labs: Labs, provider: providers.LabProvider, retries: Retries
) -> None:
    own = provider.get(lab_requirements(is_alone=True))
    retries.add_own(Retry("test_it", 1))
    zone = provider.get(lab_requirements())
    assert labs.log == ["lab ready", "lab left", "zone ready"]
    assert provider.get(lab_requirements(is_alone=True)) is own
    assert provider.get(lab_requirements()) is zone
    provider.end()
    assert labs.log[3:] == ["lab left", "lab ended", "zone given back"]


def test_lab_without_a_retry_ends_before_a_zone_is_used(labs: Labs, provider: providers.LabProvider) -> None:
    provider.reserve_zone()
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements())
    assert (labs.log, labs.free_zones) == (["lab ready", "lab ended", "zone ready"], 0)


def test_lab_of_another_size_is_replaced_if_it_cannot_be_resized(
    labs: Labs, provider: providers.LabProvider
) -> None:
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements(is_alone=True))
    lab = provider.get(lab_requirements(LARGE, is_alone=True))
    assert (lab.size, labs.log) == (LARGE, ["lab ready", "lab ended", "lab ready"])


def test_lab_in_place_of_a_zone_serves_all_scenarios(labs: Labs, provider: providers.LabProvider) -> None:
    labs.free_zones = 0
    lab = provider.get(lab_requirements())
    assert labs.log == ["every zone is in use (lab p-1); starting a dedicated lab", "lab ready"]
    assert provider.get(lab_requirements()) is lab
    assert provider.get(lab_requirements(is_alone=True)) is lab


def test_unusable_zone_is_abandoned_for_a_lab(labs: Labs, provider: providers.LabProvider) -> None:
    labs.is_zone_usable = False
    assert isinstance(provider.get(lab_requirements()), providers.OwnLab)
    assert labs.log[1:] == ["zone excluded", "zone given back", "lab ready"]


# A scenario's claims, faults, standing faults and features, from its source and markers.


Scenario = Callable[..., object]


def scenario_of(tmp_path: Path, source: str) -> Scenario:
    """Return the function `test_it` of a file with this source."""
    path = tmp_path / "test_scenario.py"
    path.write_text(textwrap.dedent(source))
    spec = importlib.util.spec_from_file_location(f"scenario_{abs(hash(source))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    scenario: Scenario = module.test_it
    return scenario


def test_claims_are_in_source_order_and_named_once(tmp_path: Path) -> None:
    source = """
        def test_it(lab, claim):
            claim("b.one").expect(lab)
            for pod in lab:
                claim("a.two").never(pod)
            claim("b.one").expect_later(lab)
    """
    assert markers.claim_ids(scenario_of(tmp_path, source)) == ("b.one", "a.two")


def test_claims_of_called_functions_of_the_file_count(tmp_path: Path) -> None:
    source = """
        def test_it(lab, claim):
            expect_eviction(lab, claim)

        def expect_eviction(lab, claim):
            claim("a.evicted").expect(lab)
            [expect_event(claim) for _ in lab]

        def expect_event(claim):
            claim("a.event").expect(None)

        def test_other(lab, claim):
            claim("a.other").expect(lab)
    """
    assert markers.claim_ids(scenario_of(tmp_path, source)) == ("a.evicted", "a.event")


@pytest.mark.parametrize(
    "call", ["claim(name)", "claim()", 'claim(f"a.{name}")', 'claim(id="a.b")', "claim(*name)"]
)
def test_id_that_is_no_literal_is_refused_with_its_line(tmp_path: Path, call: str) -> None:
    scenario = scenario_of(tmp_path, f"\ndef test_it(lab, claim, name):\n    {call}.expect(lab)\n")
    with pytest.raises(Problem, match="must be a string literal") as caught:
        markers.claim_ids(scenario)
    assert str(tmp_path / "test_scenario.py:3") in caught.value.line


def of_two_kinds(lab: Lab, judge: Judge) -> None:
    cut = partition_fault(lab.target)
    with lab.inject(cut):
        also(lab)
    assert judge


def also(lab: Lab) -> None:
    for make in (lambda: swap(lab.target), lambda: faults.outage(*lab.nodes())):
        lab.inject(make())
    if lab.quiet_s > 1:
        also(lab)


def of_none(lab: Lab) -> None:
    lab.history()


def test_faults_of_a_scenario_are_found_in_its_source_and_calls(request: pytest.FixtureRequest) -> None:
    assert markers.fault_names(item(request, of_two_kinds)) == ("outage", "partition", "swap")
    assert markers.fault_names(item(request, of_none)) == ()


def upgrades(lab: Lab) -> None:
    lab.inject(faults.upgrade("kube-scheduler", lab.upgrade_version))


ON_OWN_CLUSTER = """
from nodeproof.scenario import Lab, actions, faults, needs, probes
from nodeproof.scenario.sources import Journal, audit

@needs({needs})
def test_it(lab: Lab) -> None:
    {body}
"""
RUNS_POD, READS = (
    "lab.run(actions.run_pod(on=lab.target))",
    'lab.observe(probes.field_of("/api/v1/nodes", "kind"))',
)


def why_not_on_own_cluster(
    request: pytest.FixtureRequest, folder: Path, body: str, needed: str = "", runs_pods: bool = True
) -> tuple[str, str] | None:
    """Return why a scenario with this body cannot prove anything on an own cluster."""
    scenario = scenario_of(folder, ON_OWN_CLUSTER.format(needs=needed, body=body))
    options = Options("cluster.yaml", "documented", nodes=2, zones=1, kind="existing", runs_pods=runs_pods)
    return markers.why_unprovable(item(request, scenario), options)


@pytest.mark.parametrize(
    ("needed", "body", "used"),
    [
        ("faulted=1", "lab.inject(faults.unit_down(lab.target))", ""),
        ("faulted=1, features=('power',)", "lab.inject(faults.power_off(lab.target))", ""),
        (
            "faulted=1, features=('systemd', 'real-pods')",
            "lab.inject(faults.partition(lab.target, 'node-to-api', answer='reject'))",
            "",
        ),
        ("faulted=1", "lab.inject(faults.taint(lab.target, 'a/b', 'NoExecute'))", "taint"),
        ("faulted=1", "lab.inject(faults.unit_down(lab.target, 'a.service'))", "unit_down with unit"),
        ("", "lab.run(actions.create_node('node-9'))", "actions.create_node"),
        ("", RUNS_POD, ""),
        ("", READS, ""),
        ("", "lab.collect(Journal(lab.target, probes.STATUS))", "Journal"),
        ("", "lab.observe(probes.described(lab.target))", "probes.described"),
        ("", "lab.collect(audit(verb='create'))", "audit"),
        ("faulted=1, components=('etcd',)", "...", "etcd"),
    ],
)
def test_own_cluster_lacks_what_its_owner_does_not_allow(
    request: pytest.FixtureRequest, tmp_path: Path, needed: str, body: str, used: str
) -> None:
    reason = f"it uses {used}, which is not allowed on somebody's own cluster"
    expected = ("lab-lacks", reason) if used else None
    assert why_not_on_own_cluster(request, tmp_path, body, needed) == expected


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (RUNS_POD, ("lab-lacks", "it runs pods: name their image in the inventory's key `pods`")),
        (READS, None),
    ],
)
def test_pods_on_own_cluster_need_an_image(
    request: pytest.FixtureRequest, tmp_path: Path, body: str, reason: tuple[str, str] | None
) -> None:
    assert why_not_on_own_cluster(request, tmp_path, body, runs_pods=False) == reason


@needs(components=("control-plane",), control_planes=3)
def loses_one_of_three(lab: Lab) -> None:
    """Need three control planes."""


@pytest.mark.parametrize(
    ("scenario", "reason", "option"),
    [
        (upgrades, "it upgrades the control plane: use --upgrade-to", {"upgrade_to": "v1.37.2"}),
        (loses_one_of_three, "it needs 3 control planes: use --control-planes", {"control_planes": 3}),
    ],
)
def test_scenario_that_needs_an_option_is_unprovable_without_it(
    request: pytest.FixtureRequest, scenario: Callable[[Lab], None], reason: str, option: Mapping[str, Any]
) -> None:
    without = Options("process", "fast", kind="process")
    assert markers.why_unprovable(item(request, scenario), without) == ("lab-lacks", reason)
    given = replace(without, overrides=replace(NO_OVERRIDES, **option))
    assert markers.why_unprovable(item(request, scenario), given) is None


few, paged, one_node = standing(kubelet_settings, maxPods=40), standing(swap, 256), needs(faulted=1)


def own_constructor(node: str) -> Fault:
    return swap(node)


def item(request: pytest.FixtureRequest, function: object, *marks: Any) -> pytest.Function:
    """Return the scenario with these decorators, the last one on top."""
    module = request.node.getparent(pytest.Module)
    scenario = pytest.Function.from_parent(module, name=function.__name__, callobj=function)  # type: ignore[attr-defined]
    for decorator in marks:
        scenario.add_marker(decorator)
    return scenario


def plain() -> None: ...


def test_standing_faults_are_injected_and_shown_in_source_order(request: pytest.FixtureRequest) -> None:
    pages = item(request, plain, few, paged, one_node)
    faults = [make("node-1") for make in markers.standing(pages)]
    assert {fault.node for fault in faults} == {"node-1"}
    assert [fault.name for fault in faults] == ["swap", "kubelet-settings"]
    assert markers.fault_names(pages) == ("kubelet_settings", "swap")
    assert list(markers.describe_faults(markers.key(markers.standing(pages)))) == [
        "swap size_mib=256 used_mib=0",
        'kubelet-settings settings={"maxPods": 40}',
    ]


def test_same_standing_faults_have_the_same_key(request: pytest.FixtureRequest) -> None:
    same = standing(kubelet_settings, maxPods=40)
    keys = [
        markers.key(markers.standing(item(request, plain, *marks)))
        for marks in ((few, paged), (same, paged), (paged, few), ())
    ]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] == ""


@pytest.mark.parametrize(
    ("marks", "message"),
    [
        ((paged,), "faulted=1"),
        ((standing(swap, 256, 1), one_node), "@standing"),
        ((standing(volumes), one_node), "volumes is not a fault of a single node"),
        ((standing(own_constructor), one_node), "own_constructor is not a fault of nodeproof.scenario"),
    ],
)
def test_bad_standing_fault_fails(request: pytest.FixtureRequest, marks: Sequence[Any], message: str) -> None:
    with pytest.raises(Problem, match=message):
        markers.check(item(request, plain, *marks))


class Collected:
    """A plugin that stores the collected scenarios."""

    def __init__(self) -> None:
        self.items: list[pytest.Item] = []

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = list(session.items)


def collect(*arguments: str) -> list[pytest.Item]:
    collector = Collected()
    command = ["--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
    assert pytest.main(command, plugins=[collector]) == 0
    return collector.items


@pytest.fixture
def shutdown() -> str:
    return str(catalogue.scenarios_dir() / "shutdown")


def test_machine_marker_selects_what_a_process_lab_lacks(shutdown: str) -> None:
    chosen, all_of_them = collect("-m", "machine", shutdown), collect(shutdown)
    lacking = [item.nodeid for item in all_of_them if markers.lacks_features(item, PROCESS.features)]
    assert [item.nodeid for item in chosen] == lacking
    assert 0 < len(lacking) < len(all_of_them)
    assert not any(markers.lacks_features(item, LIBVIRT.features) for item in chosen)


@pytest.mark.parametrize(
    ("claims", "needed", "is_for_machines"),
    [
        (True, {"features": ("systemd",)}, True),
        (True, {"features": ("power",)}, False),
        (False, {"features": ("systemd",)}, False),
        (True, {"features": ("wings",)}, False),
    ],
)
def test_other_items_are_left_alone(claims: bool, needed: dict[str, Any], is_for_machines: bool) -> None:
    assert markers.needs_machine(marked(needed, claims)) is is_for_machines


def test_skew_marker_selects_by_the_area_of_claims() -> None:
    folder, claims = str(catalogue.scenarios_dir()), catalogue.load()
    areas = {one.nodeid: {claims[claim].area for claim in markers.declared(one)} for one in collect(folder)}
    chosen = {item.nodeid for item in collect("-m", "skew", folder)}
    assert chosen == {nodeid for nodeid, names in areas.items() if names & markers.SKEWED_AREAS}
    assert set[str]().union(*areas.values()) >= markers.SKEWED_AREAS


def marked(needed: dict[str, Any], claims: bool = True) -> pytest.Item:
    """Return an item with these needs."""
    marks = {"claims": pytest.mark.claims("a.b").mark} if claims else {}
    marks["needs"] = pytest.mark.needs(**needed).mark
    own = {"get_closest_marker": marks.get, "iter_markers": lambda _name: ()}
    return cast(pytest.Item, SimpleNamespace(nodeid="test_it.py::test_it", **own))


@pytest.mark.parametrize(
    ("needed", "options", "size", "missing"),
    [
        ({"nodes": 5}, {}, Size(5, 1), ""),
        ({"nodes": 9, "zones": 3}, {}, Size(9, 3), ""),
        ({"nodes": 9, "zones": 3}, {"nodes": 12, "zones": 3}, Size(12, 3), ""),
        ({"nodes": 101}, {}, Size(101, 1), "at most 100"),
        ({"nodes": (20, 3)}, {}, Size(23, 2, (20, 3)), ""),
        ({"nodes": (20, 3)}, {"nodes": 23}, Size(23, 2), "zones of 20, 3 nodes"),
        ({"nodes": (20, 3)}, {"zones": 2}, Size(23, 2), "zones of 20, 3 nodes"),
        ({"nodes": 3}, {"nodes": 2}, Size(2, 1), "it needs 3 nodes"),
        ({"zones": 3, "nodes": 6}, {"zones": 2}, Size(6, 2), "it needs 3 zones"),
        ({"faulted": 1}, {"nodes": 1}, Size(1, 1), "lose its only one"),
        ({"features": ("swap",)}, {}, Size(2, 1), "no swap"),
        ({"profile": "documented"}, {}, Size(2, 1), "in profile documented only"),
        ({"isolation": "cluster"}, {"zone": "zone-a"}, Size(2, 1), "a lab to itself"),
    ],
)
def test_lab_size_and_missing_needs_follow_the_options(
    needed: dict[str, Any], options: dict[str, Any], size: Size, missing: str
) -> None:
    run_options = Options("process", "fast", kind="process", **options)
    item = marked(needed)
    assert markers.size(markers.needs(item), run_options) == size
    reason = markers.why_unprovable(item, run_options)
    assert missing in reason[1] if reason and missing else not reason and not missing


# Retries of scenarios that stayed open because of the host's load, without a lab.


RUN_TIMEOUT_S = 300.0
SCENARIOS = """
import pathlib

import pytest

from nodeproof.model.problem import HostTooLoaded, Problem
from nodeproof.plugin import Judge
from nodeproof.scenario import claims

TRIES = pathlib.Path(__file__).with_name("tries")


def count(name):
    with TRIES.open("a") as out:
        print(name, file=out)
    return TRIES.read_text().split().count(name)


@claims("cordon.taint")
def test_loaded(judge: Judge) -> None:
    count("loaded")
    raise HostTooLoaded("a stall", "host", "retry")


@claims("cordon.display")
def test_loaded_once(judge: Judge) -> None:
    if count("loaded_once") == 1:
        raise HostTooLoaded("a stall", "host", "retry")
    raise Problem("another reason", "host", "")


@claims("heartbeat.lease-interval")
def test_other(judge: Judge) -> None:
    count("other")
"""


def run_pytest(folder: Path, source: str, *options: str) -> proc.Result:
    """Run the scenarios of one file."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").write_text("[pytest]\n")
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--run={folder / 'run'}", *options]
    return proc.run([*argv, "test_it.py"], timeout_s=RUN_TIMEOUT_S, cwd=folder, check=False)


@pytest.mark.parametrize("workers", ["-n0", "-n1"])
def test_loaded_scenarios_are_retried_at_the_end_of_the_run(workers: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    output = run_pytest(tmp_path, SCENARIOS, workers).stdout
    tries = (tmp_path / "tries").read_text().split()
    assert sorted(tries[:3]) == ["loaded", "loaded_once", "other"]
    assert sorted(tries[3:5]) == ["loaded", "loaded_once"]
    assert tries[5:] == ["loaded"]
    assert "3 rerun" in output
    codes = {row["claim"]: row["code"] for row in json.loads((run / "verdicts.json").read_text())}
    assert codes.pop("cordon.taint") == "host-too-loaded"
    assert codes == dict.fromkeys(("cordon.display", "heartbeat.lease-interval"), "gap")
    assert len(list((run / rundir.TOO_LOADED).iterdir())) == 3
    assert (run / rundir.BUSIEST).exists()


STOPS_EARLY = """
import pytest

from nodeproof.model.problem import HostTooLoaded, Problem


def test_stops(claim):
    claim("cordon.taint")
    raise Problem("stop", "here", "")


@pytest.mark.parametrize("number", range(4))
def test_is_retried(claim, number):
    claim("cordon.display")
    raise HostTooLoaded("a stall", "host", "retry")
"""


def test_retries_do_not_wait_for_a_worker_that_stopped_early(tmp_path: Path) -> None:
    ended = run_pytest(tmp_path, STOPS_EARLY, "-n2", "-x")
    assert ended.status == 2, ended.stdout
    assert "stopping after 1 failures" in ended.stdout


# Tests with labs: retries on a loaded host.


TOP = Path(__file__).resolve().parents[2]
TESTS = '''
import pathlib
import pytest

LOG = pathlib.Path(__file__).with_name("log")


def tell(what):
    with LOG.open("a") as out:
        print(what, file=out)
    return LOG.read_text().split().count(what)


@pytest.fixture(scope="session")
def lab():
    tell("up")
    yield
    tell("down")


def test_said(lab):
    if tell("said") == 1:
        print("claim  unproven: host-too-loaded  x1")
        pytest.fail("another label")


def test_compared(lab):
    assert ("host-too-loaded" if tell("compared") == 1 else "conforms") == "conforms"


def test_never(lab):
    tell("never")
    assert "host-too-loaded" == "conforms"


def test_other(lab):
    """It fails for another reason, though its source mentions host-too-loaded."""
    tell("other")
    assert "deviates" == "conforms"


def test_last(lab):
    print("claim  unproven: host-too-loaded  x1")
'''


@pytest.fixture(scope="module", params=[(), ("-n1",)], ids=["one process", "a worker"])
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], str]:
    """Return the tests in the order in which they ran, and pytest's output."""
    folder = tmp_path_factory.mktemp("loaded")
    (folder / "test_loaded.py").write_text(TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", str(folder)]
    argv = [sys.executable, "-m", "pytest", *options, *request.param, str(folder)]
    output = proc.run(argv, timeout_s=RUN_TIMEOUT_S, cwd=TOP, check=False).stdout
    return (folder / "log").read_text().split(), output


def test_failed_test_is_retried_once_on_a_new_lab_and_listed(ended: tuple[list[str], str]) -> None:
    calls, output = ended
    again = [["down", "up", what] for what in ("said", "compared", "never")]
    assert calls == ["up", *(word for what in again for word in (what[-1], *what)), "other", "down"]
    assert "2 failed, 3 passed" in output
    lines = [line for line in output.splitlines() if "tried once more on new labs" in line]
    assert [line.rpartition("::")[2] for line in lines] == ["test_compared", "test_never", "test_said"]
