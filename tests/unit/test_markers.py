"""A scenario's claims, faults, standing faults and features, from its source and markers."""

from __future__ import annotations

import importlib.util
import textwrap
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import catalogue
from nodeproof.catalogue import scenarios_dir
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.model.overrides import NO_OVERRIDES
from nodeproof.model.plan import Size
from nodeproof.model.problem import Problem
from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Fault,
    Lab,
    actions,
    faults,
    kubelet_settings,
    needs,
    partition,
    standing,
    swap,
    volumes,
)
from nodeproof.scenario import swap as paging
from nodeproof.scenario.sources import audit
from nodeproof.session import markers
from nodeproof.session.options import Options
from nodeproof.session.scenario_source import claim_ids

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
    assert claim_ids(scenario_of(tmp_path, source)) == ("b.one", "a.two")


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
    assert claim_ids(scenario_of(tmp_path, source)) == ("a.evicted", "a.event")


@pytest.mark.parametrize(
    "call", ["claim(name)", "claim()", 'claim(f"a.{name}")', 'claim(id="a.b")', "claim(*name)"]
)
def test_id_that_is_no_literal_is_refused_with_its_line(tmp_path: Path, call: str) -> None:
    scenario = scenario_of(tmp_path, f"\ndef test_it(lab, claim, name):\n    {call}.expect(lab)\n")
    with pytest.raises(Problem, match="must be a string literal") as caught:
        claim_ids(scenario)
    assert str(tmp_path / "test_scenario.py:3") in caught.value.line


def of_two_kinds(lab: Lab, judge: Judge) -> None:
    cut = partition(lab.target)
    with lab.inject(cut):
        also(lab)
    assert judge


def also(lab: Lab) -> None:
    for make in (lambda: paging(lab.target), lambda: faults.outage(*lab.nodes())):
        lab.inject(make())
    if lab.quiet_s > 1:
        also(lab)


def of_none(lab: Lab) -> None:
    lab.history()


def test_faults_of_a_scenario_are_found_in_its_source_and_calls(
    request: pytest.FixtureRequest,
) -> None:
    module = request.node.getparent(pytest.Module)
    two, none = (
        pytest.Function.from_parent(module, name=f.__name__, callobj=f) for f in (of_two_kinds, of_none)
    )
    assert markers.fault_names(two) == ("outage", "partition", "swap")
    assert markers.fault_names(none) == ()


def upgrades(lab: Lab) -> None:
    lab.inject(faults.upgrade("kube-scheduler", lab.upgrade_version))


def test_upgrade_needs_its_option(request: pytest.FixtureRequest) -> None:
    module = request.node.getparent(pytest.Module)
    item = pytest.Function.from_parent(module, name="upgrades", callobj=upgrades)
    options = Options("process", "fast", kind="process")
    reason = ("lab-lacks", "it upgrades the control plane: use --upgrade-to")
    assert markers.why_unprovable(item, options) == reason
    options = replace(options, overrides=replace(NO_OVERRIDES, upgrade_to="v1.37.2"))
    assert markers.why_unprovable(item, options) is None


@needs(faulted=1)
def stops_kubelet(lab: Lab) -> None:
    lab.inject(faults.unit_down(lab.target))


@needs(faulted=1)
def cuts(lab: Lab) -> None:
    lab.inject(faults.partition(lab.target))


def acts(lab: Lab) -> None:
    lab.run(actions.run_pod(on=lab.target))


def reads(lab: Lab) -> None:
    lab.collect(audit(verb="create"))


@needs(faulted=1, components=("etcd",))
def harms_etcd(lab: Lab) -> None: ...


@pytest.mark.parametrize(
    ("scenario", "used"),
    [
        (stops_kubelet, ""),
        (cuts, "partition"),
        (acts, "actions.run_pod"),
        (reads, "audit"),
        (harms_etcd, "etcd"),
    ],
)
def test_own_cluster_lacks_all_but_its_fault(
    request: pytest.FixtureRequest, scenario: Callable[[Lab], None], used: str
) -> None:
    of_function = item(request, scenario)
    options = Options("cluster.yaml", "documented", nodes=2, zones=1, kind="existing")
    missing = markers.why_unprovable(of_function, options)
    reason = f"it uses {used}, which nodeproof does not do to somebody's own cluster"
    assert missing == (("lab-lacks", reason) if used else None)


@needs(components=("control-plane",), control_planes=3)
def loses_one_of_three(lab: Lab) -> None:
    """Need three control planes."""


def test_three_control_planes_need_their_option(request: pytest.FixtureRequest) -> None:
    module = request.node.getparent(pytest.Module)
    item = pytest.Function.from_parent(module, name="three", callobj=loses_one_of_three)
    options = Options("process", "fast", kind="process")
    reason = ("lab-lacks", "it needs 3 control planes: use --control-planes")
    assert markers.why_unprovable(item, options) == reason
    options = replace(options, overrides=replace(NO_OVERRIDES, control_planes=3))
    assert markers.why_unprovable(item, options) is None


few, standing_swap = standing(kubelet_settings, maxPods=40), standing(swap, 256)


@needs(faulted=1)
@standing_swap
@few
def pages() -> None: ...


@needs(faulted=1)
@standing_swap
@standing(kubelet_settings, maxPods=40)
def pages_too() -> None: ...


@needs(faulted=1)
@few
@standing_swap
def in_another_order() -> None: ...


@standing_swap
def without_affected_nodes() -> None: ...


@needs(faulted=1)
@standing(swap, 256, 1)
def misspelled() -> None: ...


@needs(faulted=1)
@standing(volumes)
def of_volumes() -> None: ...


def own_constructor(node: str) -> Fault:
    return swap(node)


@needs(faulted=1)
@standing(own_constructor)
def by_own_constructor() -> None: ...


def plain() -> None: ...


def item(request: pytest.FixtureRequest, function: object) -> pytest.Function:
    module = request.node.getparent(pytest.Module)
    return pytest.Function.from_parent(module, name=function.__name__, callobj=function)  # type: ignore[attr-defined]


def test_standing_faults_are_injected_and_shown_in_source_order(request: pytest.FixtureRequest) -> None:
    faults = [make("node-1") for make in markers.standing(item(request, pages))]
    assert [(fault.name, fault.node) for fault in faults] == [
        ("swap", "node-1"),
        ("kubelet-settings", "node-1"),
    ]
    assert markers.fault_names(item(request, pages)) == ("kubelet_settings", "swap")
    assert list(markers.describe_faults(markers.key(markers.standing(item(request, pages))))) == [
        "swap size_mib=256 used_mib=0",
        'kubelet-settings settings={"maxPods": 40}',
    ]


def test_same_standing_faults_have_the_same_key(request: pytest.FixtureRequest) -> None:
    keys = [
        markers.key(markers.standing(item(request, function)))
        for function in (pages, pages_too, in_another_order, plain)
    ]
    assert keys[0] == keys[1] != keys[2]
    assert keys[3] == ""


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (without_affected_nodes, "faulted=1"),
        (misspelled, "@standing"),
        (of_volumes, "volumes is not a fault of a single node"),
        (by_own_constructor, "own_constructor is not a fault of nodeproof.scenario"),
    ],
)
def test_invalid_standing_fault_is_refused_before_the_start(
    request: pytest.FixtureRequest, function: object, message: str
) -> None:
    with pytest.raises(Problem, match=message):
        markers.check(item(request, function))


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
    return str(scenarios_dir() / "shutdown")


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
def test_non_scenario_and_impossible_scenario_are_left_alone(
    claims: bool, needed: dict[str, Any], is_for_machines: bool
) -> None:
    assert markers.needs_machine(marked(needed, claims)) is is_for_machines


def test_skew_marker_selects_by_the_area_of_claims() -> None:
    folder, claims = str(scenarios_dir()), catalogue.load()
    areas = {
        item.nodeid: {claims[claim].area for claim in markers.declared(item)} for item in collect(folder)
    }
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
