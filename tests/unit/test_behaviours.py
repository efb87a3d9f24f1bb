"""Scenarios in Allure by the page: sections, claims and sentences, and what deviates anew."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.report import behaviour_tree, behaviours, categories, digest, page, since, summary
from nodeproof.report.evidence import Finder
from nodeproof.report.sections import NODES, SECTIONS
from nodeproof.report.since import Since
from tests.unit.told_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, tell

Json = Any
CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
DETECTION, LEASE, CORDON = "monitoring.detection-time", "heartbeat.lease-interval", "cordon.not-a-condition"
PLAIN = next(claim for claim, told in CLAIMS.items() if not told.drift and told.status == "judged")


def test_a_scenario_stands_under_headings_claims_and_its_sentence() -> None:
    told = list(behaviours.labels(CUT, [LEASE, DETECTION, "own.claim"], CLAIMS))
    values = {name: [value for key, value in told if key == name] for name, _value in told}
    assert values["epic"] == ["Node heartbeats", "Node controller", "Not of the page: own"]
    assert f"{CLAIMS[LEASE].statement} ({LEASE})" in values["feature"]
    assert "own.claim" in values["feature"]
    assert (values["story"], values["scenario"]) == (["A cut node is found"], [CUT])
    assert dict(behaviours.links([LEASE, DETECTION])) == {
        f"{NODES}#node-heartbeats": "Kubernetes: Node heartbeats",
        f"{NODES}#node-controller": "Kubernetes: Node controller",
    }


def test_links_lead_to_where_kubernetes_has_the_text_today() -> None:
    assert list(behaviours.links(["own.claim"])) == []
    found = dict(behaviours.links(["graceful-shutdown.event", "swap.gate", "scheduling.max-pods", "own.x"]))
    docs = "https://kubernetes.io/docs/concepts/"
    assert {title: address.removeprefix(docs) for address, title in found.items()} == {
        "Kubernetes: Graceful node shutdown": "cluster-administration/node-shutdown/#graceful-node-shutdown",
        "Kubernetes: Resource capacity tracking": "architecture/nodes/#node-capacity",
        "Kubernetes: Swap memory management": "cluster-administration/swap-memory-management/",
    }
    assert all(section.address for section in SECTIONS)


def tree(*scenarios: tuple[str, str, tuple[str, ...]]) -> Json:
    """As Allure makes it of names, statuses and claims: each claim below each heading of its scenario."""
    made: Json = {"root": {"groups": [], "leaves": []}, "groupsById": {}, "leavesById": {}}
    groups = made["groupsById"]
    for name, status, claims in scenarios:
        made["leavesById"][name] = {"nodeId": name, "status": status}
        labels = list(behaviours.labels(name, claims, CLAIMS))
        for heading in (value for key, value in labels if key == "epic"):
            group = groups.setdefault(heading, {"name": heading, "groups": [], "statistic": {"total": 99}})
            if heading not in made["root"]["groups"]:
                made["root"]["groups"].append(heading)
            for feature in (value for key, value in labels if key == "feature"):
                key = f"{heading}.{feature}"
                groups.setdefault(key, {"name": feature, "leaves": []})["leaves"].append(name)
                group["groups"] = [*dict.fromkeys([*group["groups"], key])]
    return made


def arranged(made: Json) -> Json:
    data = base64.b64encode(json.dumps(made).encode()).decode()
    html = f'<p>d("widgets/nav.json","e30=")</p>d("widgets/default/tree.json","{data}")</script>'
    found = behaviour_tree.arrange(html, CLAIMS)
    assert found.startswith('<p>d("widgets/nav.json","e30=")</p>')
    told = re.search(r'tree\.json","([^"]+)"', found)
    assert told is not None
    return json.loads(base64.b64decode(told[1]))


def test_each_claim_is_below_its_own_heading_in_the_order_of_the_page() -> None:
    made = arranged(
        tree(
            ("a", "failed", (DETECTION, LEASE)), ("b", "passed", (LEASE,)), ("c", "passed", (CORDON, "own.x"))
        )
    )
    shown = {
        group: [made["groupsById"][name]["name"] for name in made["groupsById"][group]["groups"]]
        for group in made["root"]["groups"]
    }
    assert list(shown) == [
        "Manual Node administration",
        "Node heartbeats",
        "Node controller",
        "Not of the page: own",
    ]
    assert shown["Node heartbeats"] == [behaviours.feature(LEASE, CLAIMS[LEASE])]
    assert shown["Node controller"] == [behaviours.feature(DETECTION, CLAIMS[DETECTION])]
    below = [made["groupsById"][name]["groups"] for name in made["root"]["groups"]]
    ours = [[made["groupsById"][name]["leaves"] for name in names] for names in below[:3]]
    begin = [made["leavesById"][leaf]["start"] for names in ours for leaves in names for leaf in leaves]
    begin = [each for each in begin if each < len(CLAIMS)]
    assert begin == sorted(begin), "Allure's page sorts by it"
    assert made["groupsById"]["Node heartbeats"]["statistic"] == {"total": 2, "failed": 1, "passed": 1}


def test_results_of_earlier_versions_stay_as_they_are() -> None:
    old = {
        "root": {"groups": ["1"], "leaves": ["x"]},
        "groupsById": {
            "1": {"name": "heartbeat", "groups": ["2"], "statistic": {"total": 1}},
            "2": {"name": LEASE, "leaves": ["x"]},
        },
        "leavesById": {"x": {"status": "passed"}},
    }
    assert arranged(old) == old


def test_what_is_new_stands_apart(tmp_path: Path) -> None:
    names = [f"a.py::test_{letter}[/?]" for letter in "abcd"]
    told = [
        (names[0], PLAIN, DEVIATES),
        (names[1], DETECTION, DEVIATES),
        (names[2], LEASE, DEVIATES),
        (names[3], LEASE, DEVIATES),
        (names[3], PLAIN, DEVIATES),
        ("a.py::test_e", CORDON, CONFORMS),
    ]
    found = digest.read(tell(tmp_path / "run", told))
    earlier = {LEASE: Since((FACTS, FACTS)), PLAIN: Since((FACTS,)), DETECTION: Since((FACTS,))}
    made = {
        each["name"]: [matcher["labels"]["scenario"] for matcher in each["matchers"]]
        for each in categories.deviations(found, earlier, CLAIMS)
    }
    assert list(made) == [categories.NEW, categories.NEW_BESIDE_DRIFT, categories.STANDING]
    for name, expected in zip(made, ([0, 3], [1], [2]), strict=True):
        assert [
            [bool(re.search(each, other)) for other in names].index(True) for each in made[name]
        ] == expected


def test_since_when_a_claim_deviates(tmp_path: Path) -> None:
    def night(day: int, verdict: Any, **changed: Any) -> Path:
        facts = replace(FACTS, began=f"2026-11-{day}T02:00:00+00:00", **changed)
        return tell(tmp_path / f"night-{day}", [(CUT, DETECTION, verdict)], facts)

    night(10, DEVIATES)
    night(11, CONFORMS, kubernetes_version="v1.35.0")
    night(12, DEVIATES, kubernetes_version="v1.36.0")
    night(13, GAP)
    night(14, CONFORMS, profile="documented")
    (night(15, CONFORMS) / "verdicts.json").write_text("{")
    (night(16, CONFORMS) / "run.json").write_text("[]")
    night(17, DEVIATES)
    run = night(18, DEVIATES)
    night(19, CONFORMS)
    found = digest.read(run)
    assert found.facts is not None
    told = since.deviating(run, found.facts, found.rows)
    assert {claim: str(each) for claim, each in told.items()} == {
        DETECTION: "since 2026-11-12 02:00 UTC (run night-12, Kubernetes v1.36.0), in 3 runs one after the "
        "other; before, it conformed on 2026-11-11 02:00 UTC (run night-11, Kubernetes v1.35.0)"
    }


def test_what_deviates_for_the_first_time_is_new(tmp_path: Path) -> None:
    run = tell(tmp_path / "b", [(CUT, DETECTION, DEVIATES), (CUT, LEASE, CONFORMS)])
    found = digest.read(run)
    assert found.facts is not None
    (told,) = since.deviating(run, found.facts, found.rows).values()
    assert (told.is_new, str(told)) == (True, "since this run: no earlier one here judged it")
    tell(tmp_path / "a", [(CUT, DETECTION, CONFORMS)], replace(FACTS, began="2026-11-01T00:00:00+00:00"))
    (told,) = since.deviating(run, found.facts, found.rows).values()
    assert str(told) == "since this run: it conformed on 2026-11-01 00:00 UTC (run a)"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("kubectl_describes_a_node_as_the_api_has_it", "kubectl describes a node as the API has it"),
        ("a_machine_that_comes_under_a_nodes_name", "A machine that comes under a node's name"),
        ("a_dead_nodes_volume_is_detached", "A dead node's volume is detached"),
        ("tolerations_as_the_api_servers_flags_say", "Tolerations as the API server's flags say"),
        ("a_zone_of_fifty_one_nodes_loses_one", "A zone of fifty-one nodes loses one"),
        ("two_nodes_have_ips_of_a_cidr", "Two nodes have IPs of a CIDR"),
        ("a_node_whose_kube_proxy_is_gone", "A node whose kube-proxy is gone"),
        ("a_node_has_noexecute[fd00::1]", "A node has NoExecute [fd00::1]"),
        ("a_node[api_x::y] (its worker died)", "A node [api_x::y] (its worker died)"),
    ],
)
def test_a_title_is_a_sentence(name: str, said: str) -> None:
    assert behaviours.title(f"scenarios/test_a.py::TestB::test_{name}") == said


def test_all_reports_call_a_scenario_the_same(tmp_path: Path) -> None:
    nodeid = "scenarios/test_a.py::test_a_nodes_api[fd00::1]"
    run = tell(tmp_path / "run", [(nodeid, PLAIN, DEVIATES)])
    found = digest.read(run)
    assert dict(behaviours.labels(nodeid, [PLAIN], CLAIMS))["story"] == "A node's API [fd00::1]"
    assert "<bdi>A node&#39;s API [fd00::1]</bdi>" in page.render(found, CLAIMS)
    assert "scenario: `A node's API [fd00::1]`" in summary.render(found, CLAIMS)


def test_results_are_found_by_their_node_id(tmp_path: Path) -> None:
    run = tell(tmp_path / "run", [(CUT, DETECTION, CONFORMS)])
    labels = [{"name": name, "value": value} for name, value in behaviours.labels(CUT, [DETECTION], CLAIMS)]
    result = {"uuid": "x", "name": behaviours.title(CUT), "fullName": "a.b#test_c", "labels": labels}
    (run / "allure-results" / "x-result.json").write_text(json.dumps(result))
    (run / "site").mkdir()
    (run / "site" / "index.html").write_text("")
    assert Finder.of(run).find(CUT).allure.startswith("index.html#")
