"""Labels, links and categories of Allure; titles of scenarios; since when a claim deviates."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodeproof.report import allure, digest, sections
from nodeproof.report.digest import Since
from nodeproof.report.sections import SECTIONS
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DEVIATES, FACTS, GAP, tell

Json = Any
CUT = "scenarios/partition/test_unreachable.py::test_a_cut_node_is_found"
DETECTION, LEASE, CORDON = "monitoring.detection-time", "heartbeat.lease-interval", "cordon.not-a-condition"
PLAIN = next(claim for claim, entry in CLAIMS.items() if not entry.drift and entry.status == "judged")


def test_scenario_is_grouped_by_headings_claims_and_sentence() -> None:
    labels = list(allure.labels(CUT, [LEASE, DETECTION, "own.claim"], CLAIMS))
    values = {name: [value for key, value in labels if key == name] for name, _value in labels}
    assert values["epic"] == ["Node heartbeats", "Node controller", "Not on the page: own"]
    assert f"{CLAIMS[LEASE].statement} ({LEASE})" in values["feature"]
    assert "own.claim" in values["feature"]
    assert (values["story"], values["scenario"]) == (["A cut node is found"], [CUT])


def test_links_lead_to_the_current_kubernetes_documentation() -> None:
    links = dict(allure.links(["graceful-shutdown.event", "scheduling.max-pods", "own.x"]))
    docs = "https://kubernetes.io/docs/concepts/"
    assert {name: address.removeprefix(docs) for address, name in links.items()} == {
        "Kubernetes: Graceful node shutdown": "cluster-administration/node-shutdown/#graceful-node-shutdown",
        "Kubernetes: Resource capacity tracking": "architecture/nodes/#node-capacity",
    }
    assert all(section.address for section in SECTIONS)


def test_new_deviations_have_their_own_category(tmp_path: Path) -> None:
    names = [f"a.py::test_{letter}[/?]" for letter in "abcd"]
    rows = [
        (names[0], PLAIN, DEVIATES),
        (names[1], DETECTION, DEVIATES),
        (names[2], LEASE, DEVIATES),
        (names[3], LEASE, DEVIATES),
        (names[3], PLAIN, DEVIATES),
        ("a.py::test_e", CORDON, CONFORMS),
    ]
    run = digest.read(tell(tmp_path / "run", rows))
    earlier = {LEASE: Since((FACTS, FACTS)), PLAIN: Since((FACTS,)), DETECTION: Since((FACTS,))}
    by_category = {
        category["name"]: [matcher["labels"]["scenario"] for matcher in category["matchers"]]
        for category in allure.deviation_categories(run, earlier, CLAIMS)
    }
    assert list(by_category) == [allure.NEW, allure.NEW_BESIDE_DRIFT, allure.STANDING]
    for name, expected in zip(by_category, ([0, 3], [1], [2]), strict=True):
        assert [
            [bool(re.search(pattern, other)) for other in names].index(True) for pattern in by_category[name]
        ] == expected


def test_claim_shows_since_when_it_deviates(tmp_path: Path) -> None:
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
    night(18, CONFORMS, overrides=("--set kubelet.maxPods=50",))
    run = night(19, DEVIATES)
    night(20, CONFORMS)
    run_digest = digest.read(run)
    assert run_digest.facts is not None
    histories = digest.deviating_since(run, run_digest.facts, run_digest.rows)
    assert {claim: str(history) for claim, history in histories.items()} == {
        DETECTION: "since 2026-11-12 02:00 UTC (run night-12, Kubernetes v1.36.0), in 3 consecutive runs; "
        "last conformed on 2026-11-11 02:00 UTC (run night-11, Kubernetes v1.35.0)"
    }


def test_first_deviation_is_marked_as_new(tmp_path: Path) -> None:
    run = tell(tmp_path / "b", [(CUT, DETECTION, DEVIATES), (CUT, LEASE, CONFORMS)])
    run_digest = digest.read(run)
    assert run_digest.facts is not None
    (history,) = digest.deviating_since(run, run_digest.facts, run_digest.rows).values()
    assert (history.is_new, str(history)) == (True, "since this run; no earlier run here judged it")
    tell(tmp_path / "a", [(CUT, DETECTION, CONFORMS)], replace(FACTS, began="2026-11-01T00:00:00+00:00"))
    (history,) = digest.deviating_since(run, run_digest.facts, run_digest.rows).values()
    assert str(history) == "since this run; last conformed on 2026-11-01 00:00 UTC (run a)"


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("kubectl_describes_a_node_as_the_api_has_it", "kubectl describes a node as the API has it"),
        ("a_dead_nodes_volume_is_detached", "A dead node's volume is detached"),
        ("a_node_whose_kube_proxy_is_gone", "A node whose kube-proxy is gone"),
        ("a_node_has_noexecute[fd00::1]", "A node has NoExecute [fd00::1]"),
        ("a_node[api_x::y] (its worker died)", "A node [api_x::y] (its worker died)"),
    ],
)
def test_title_is_a_sentence(name: str, title: str) -> None:
    assert sections.title(f"scenarios/test_a.py::TestB::test_{name}") == title
