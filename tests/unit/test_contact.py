"""A kubelet that renews its Lease during a fault was not cut off by it, so nothing that follows counts."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from nodeproof import catalogue
from nodeproof.checks.heartbeats import contact, silences
from nodeproof.checks.judge import judge
from nodeproof.model.cluster import LEASE_NAMESPACE
from nodeproof.model.history import Entry, History
from nodeproof.model.judgment import Check
from nodeproof.model.verdict import Verdict
from nodeproof.report.recheck import rejudge
from tests.golden_runs import RUNS, thawed
from tests.history_mutations import revised
from tests.unit.histories import CUT_T, GRACE_S, NODE, OTHER, Story, configuration, last_renewal_t, wall
from tests.unit.sample_checks import CLAIM, FROM_FAULT, TAINT

Json = Any
CLAIMS = catalogue.load([RUNS / "claims"])
NOT_INJECTED, DEVIATES, CONFORMS = "unproven: not-injected", "deviates", "conforms"
LATE_T = CUT_T + 8.0
"""A renewal long after the fault took hold: it makes the node Unknown too late."""
LATE_UNKNOWN_T = LATE_T + GRACE_S + 0.6
PROMPT_UNKNOWN_T = last_renewal_t() + GRACE_S + 0.6
HEALING_T = 45.0
PARTITION: Json = {"fault": "partition", "direction": "both"}
OUTAGE: Json = {"fault": "outage", "nodes": {NODE: "10.0.0.1", "node-3": "10.0.0.3"}}
KUBELET, ANOTHER = "hollow-kubelet", "kubectl-patch"


def renewed(
    story: Story, t: float, by: str = KUBELET, received_t: float | None = None, node: str = NODE, **spec: Json
) -> Story:
    """Renew a node's Lease as a field manager; nobody is named if `by` is empty."""
    body = {"metadata": managed(story, t, by, node), "spec": {"renewTime": wall(t), **spec}}
    received_t = t + 0.01 if received_t is None else received_t
    return story.change(received_t, "leases", LEASE_NAMESPACE, node, body)


def annotated(story: Story, t: float, by: str = ANOTHER) -> Story:
    """Write a Lease without renewing it."""
    body = story.object("leases", LEASE_NAMESPACE, NODE)
    others = [entry for entry in body["metadata"].get("managedFields", ()) if entry["manager"] != by]
    own = {"manager": by, "time": wall(t), "fieldsV1": {"f:metadata": {"f:annotations": {}}}}
    body["metadata"] |= {"annotations": {"seen": "true"}, "managedFields": [*others, own]}
    return story.change(t + 0.01, "leases", LEASE_NAMESPACE, NODE, body)


def managed(story: Story, t: float, by: str, node: str) -> Json:
    if not by:
        return {}
    present = story.object("leases", LEASE_NAMESPACE, node)["metadata"].get("managedFields", ())
    others = [{**entry, "fieldsV1": {}} for entry in present if entry["manager"] != by]
    own = {"manager": by, "time": wall(t), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    return {"managedFields": [*others, own]}


def cut(fault: Json = PARTITION, by: str = KUBELET, place: str = NODE) -> Story:
    """Record the renewals of a node up to a fault that its probe confirms."""
    story, t = Story().sentinel(1.0), 2.5
    while t < CUT_T:
        renewed(story, t, by)
        t += 2.04
    return story.fault(CUT_T, "injecting", "injected", fault=fault, node=place)


def lost(story: Story, unknown_t: float = LATE_UNKNOWN_T, taint_s: float = 0.15) -> Story:
    """Record that the node becomes Unknown, and the healing."""
    story.condition(unknown_t, "Unknown").taint(unknown_t + taint_s)
    return story.fault(HEALING_T, "healing", "healed", "closed", fault=PARTITION)


def verdict_of(story: Story, check: Check = FROM_FAULT) -> Verdict:
    return judge(CLAIM, check, revised(story.fence(90.0).history()), configuration())


def test_renewal_through_a_partition_makes_no_deviation() -> None:
    verdict = verdict_of(lost(renewed(cut(), LATE_T)))
    assert verdict.label == NOT_INJECTED
    assert verdict.reason.startswith(f"{NODE} renewed its Lease 7.99 s after the injection of fault cut")
    assert verdict.measured is not None


def test_silent_kubelet_leaves_the_verdict_as_it_is() -> None:
    assert verdict_of(lost(cut(), PROMPT_UNKNOWN_T)).label == CONFORMS
    assert verdict_of(lost(cut(), LATE_UNKNOWN_T)).label == DEVIATES


def test_claim_that_conforms_despite_the_contact_is_unproven_too() -> None:
    assert verdict_of(lost(cut(), PROMPT_UNKNOWN_T), TAINT).label == CONFORMS
    assert verdict_of(lost(renewed(cut(), LATE_T)), TAINT).label == NOT_INJECTED


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (PARTITION, NOT_INJECTED),
        ({"fault": "partition", "direction": "node-to-api"}, NOT_INJECTED),
        ({"fault": "partition", "direction": "both", "answer": "reject"}, NOT_INJECTED),
        ({"fault": "power-off"}, NOT_INJECTED),
        ({"fault": "reset"}, NOT_INJECTED),
        ({"fault": "freeze"}, NOT_INJECTED),
        ({"fault": "link-down"}, NOT_INJECTED),
        ({"fault": "unit-down", "unit": "kubelet.service"}, NOT_INJECTED),
        # The kubelet goes on to renew its Lease under these.
        ({"fault": "partition", "direction": "api-to-node"}, DEVIATES),
        ({"fault": "unit-down", "unit": "containerd.service"}, DEVIATES),
        ({"fault": "swap", "size_mib": 128}, DEVIATES),
        ({"fault": "shutdown", "way": "orderly"}, DEVIATES),
        ({"fault": "refused", "on": NODE, "what": "lease"}, DEVIATES),
    ],
)
def test_only_faults_that_silence_a_kubelet_presume_its_silence(fault: Json, expected: str) -> None:
    assert verdict_of(lost(renewed(cut(fault), LATE_T))).label == expected


def test_outage_presumes_the_silence_of_all_its_nodes() -> None:
    story = cut(OUTAGE, place="control-plane")
    assert {silence.node for silence in silences(story.history())} == {NODE, "node-3"}
    assert verdict_of(lost(renewed(story, LATE_T))).label == NOT_INJECTED


def test_renewal_of_a_node_without_a_fault_is_no_contact() -> None:
    assert verdict_of(lost(renewed(cut(), LATE_T, node=OTHER))).label == DEVIATES


@pytest.mark.parametrize("received_t", [CUT_T + 0.02, CUT_T + 0.3, CUT_T + 5.0])
def test_renewal_in_flight_at_injection_is_no_contact(received_t: float) -> None:
    story = renewed(cut(), CUT_T - 0.1, received_t=received_t)
    assert verdict_of(lost(story, CUT_T - 0.1 + GRACE_S + 0.6)).label != NOT_INJECTED
    assert contact(story.history(), configuration()) == ""


@pytest.mark.parametrize(("after_s", "is_contact"), [(0.1, False), (0.2, False), (0.6, True), (2.0, True)])
def test_renewal_counts_once_it_is_later_than_the_slack(after_s: float, is_contact: bool) -> None:
    story = renewed(cut(), CUT_T + 0.01 + after_s)
    assert bool(contact(story.history(), configuration())) is is_contact


def test_renewal_counts_only_beyond_the_slack_of_a_loaded_host() -> None:
    story = renewed(cut(), CUT_T + 1.0)
    assert contact(story.history(), configuration())
    story.say(CUT_T + 1.5, "stall", late_s=1.2)
    assert contact(story.history(), configuration()) == ""


def test_renewal_counts_by_the_clock_of_its_node() -> None:
    """The clock of the node is 3 s ahead: the renewal was sent before the fault."""
    story = cut()
    story.entries = [entry for entry in story.entries if entry.kind != "clock"]
    story.say(0.0, "clock", node=NODE, offset_s=3.0, error_s=0.01)
    renewed(story, CUT_T + 2.5, received_t=CUT_T + 0.1)
    assert contact(story.history(), configuration()) == ""
    renewed(story, CUT_T + 8.0, received_t=CUT_T + 5.1)
    assert contact(story.history(), configuration())


@pytest.mark.parametrize("received_t", [HEALING_T + 0.01, HEALING_T + 1.0])
def test_renewal_received_once_healing_began_is_no_contact(received_t: float) -> None:
    story = lost(cut(), PROMPT_UNKNOWN_T)
    renewed(story, HEALING_T - 3.0, received_t=received_t)
    assert verdict_of(story).label == CONFORMS


def test_renewal_between_two_faults_is_no_contact() -> None:
    story = cut().fault(CUT_T + 2.0, "healing", "healed", "closed", fault=PARTITION)
    renewed(story, CUT_T + 4.0)
    story.fault(CUT_T + 6.0, "injecting", "injected", fault=PARTITION, id_="second")
    assert contact(story.history(), configuration()) == ""
    renewed(story, CUT_T + 8.0)
    assert "fault second" in contact(story.history(), configuration())


def test_standing_fault_presumes_silence_from_the_beginning() -> None:
    story = Story().fault(0.0, "injecting", "injected", fault=PARTITION)
    assert contact(story.history(), configuration()) == ""
    assert contact(renewed(story, 5.0, by="").history(), configuration())


def test_lease_on_a_list_after_a_gap_shows_the_contact() -> None:
    story = cut()
    body = {"metadata": managed(story, LATE_T, KUBELET, NODE), "spec": {"renewTime": wall(LATE_T)}}
    story.change(LATE_T, "leases", LEASE_NAMESPACE, NODE, body, is_watched=False)
    story.gap(LATE_T - 1.0, LATE_T + 2.0, "leases", lists=True)
    assert contact(story.history(), configuration())


def test_fault_without_proof_is_reported_as_such() -> None:
    story = renewed(cut(), LATE_T).fault(LATE_T + 2.0, "unproven", fault=PARTITION)
    verdict = verdict_of(lost(story))
    assert verdict.label == NOT_INJECTED
    assert "no probe proved" in verdict.reason


@pytest.mark.parametrize(
    ("by", "spec"),
    [(ANOTHER, {"holderIdentity": NODE}), (ANOTHER, {"holderIdentity": "somebody"}), (ANOTHER, {})],
)
def test_renewal_by_another_writer_is_no_contact(by: str, spec: Mapping[str, Json]) -> None:
    verdict = verdict_of(lost(renewed(cut(), LATE_T, by, **spec)))
    assert verdict.label == DEVIATES
    holder = spec.get("holderIdentity", "none")
    assert f"{by} (holder {holder}), not the kubelet, wrote the Lease of {NODE}" in verdict.reason


def test_holder_identity_shows_another_writer_without_managed_fields() -> None:
    verdict = verdict_of(lost(renewed(cut(by=""), LATE_T, "", holderIdentity="somebody")))
    assert verdict.label == DEVIATES
    assert "another client (holder somebody), not the kubelet" in verdict.reason
    own = verdict_of(lost(renewed(cut(by=""), LATE_T, "", holderIdentity=NODE)))
    assert own.label == NOT_INJECTED


def test_kubelet_is_known_by_the_manager_of_its_earlier_renewals() -> None:
    assert verdict_of(lost(renewed(cut(by="k3s"), LATE_T, "k3s"))).label == NOT_INJECTED
    assert verdict_of(lost(renewed(cut(by="k3s"), LATE_T, "kubelet"))).label == DEVIATES


def test_deviation_names_a_writer_that_only_annotated_the_lease() -> None:
    verdict = verdict_of(lost(annotated(cut(), CUT_T + 4.0)))
    assert verdict.label == DEVIATES
    assert f"{ANOTHER} (holder none), not the kubelet, wrote the Lease of {NODE} 4.00 s" in verdict.reason


def test_contact_names_another_writer_too() -> None:
    verdict = verdict_of(lost(renewed(annotated(cut(), CUT_T + 4.0), LATE_T)))
    assert verdict.label == NOT_INJECTED
    assert f"{NODE} renewed its Lease" in verdict.reason
    assert f"{ANOTHER} (holder none)" in verdict.reason


def test_annotation_before_the_fault_is_ignored() -> None:
    story = Story().sentinel(1.0)
    annotated(renewed(story, 4.0), 5.0)
    renewed(story, CUT_T - 1.0).fault(CUT_T, "injecting", "injected", fault=PARTITION)
    verdict = verdict_of(lost(story))
    assert verdict.label == DEVIATES
    assert ANOTHER not in verdict.reason


def test_conforming_claim_names_no_other_writer() -> None:
    verdict = verdict_of(lost(annotated(cut(), CUT_T + 4.0), PROMPT_UNKNOWN_T))
    assert verdict.label == CONFORMS
    assert ANOTHER not in verdict.reason


def by_another(entry: Entry, since_t: float) -> Entry:
    """Return an entry in which another client wrote the Lease of the node from a time (s) on."""
    is_lease = entry.kind == "watch" and entry.data["resource"] == "leases"
    if not is_lease or entry.t <= since_t or entry.data["object"]["metadata"]["name"] != NODE:
        return entry
    altered = copy.deepcopy(dict(entry.data))
    for field in altered["object"]["metadata"]["managedFields"]:
        field["manager"] = ANOTHER
    return replace(entry, data=altered)


def test_recorded_partition_with_a_hole_deviates_only_if_another_client_renewed() -> None:
    with thawed(RUNS / "partition-with-a-hole") as scenario:
        history, settings = scenario.history(), scenario.configuration()
        judged = {judgment.claim: judgment.check for judgment, _verdict in rejudge(scenario, CLAIMS).judged}
    check = judged["monitoring.unknown-reason"]
    claim = CLAIMS["monitoring.unknown-reason"]
    verdict = judge(claim, check, history, settings)
    assert verdict.label == NOT_INJECTED
    assert verdict.reason.startswith(f"{NODE} renewed its Lease")
    (silence,) = silences(history)
    other = History.of(by_another(entry, silence.span.since_t) for entry in history.entries)
    verdict = judge(claim, check, other, settings)
    assert verdict.label == DEVIATES
    assert f"{ANOTHER} (holder {NODE}), not the kubelet" in verdict.reason
