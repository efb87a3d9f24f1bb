"""What runs on a node beside its kubelet, and does not count for its health."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    api_at,
    changed,
    claims,
    field_of,
    kube_proxy,
    kubelet_settings,
    needs,
    next_of,
    spaced,
    windows,
    written,
)

KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
ANSWERS = "answers"
REPORTED_S, LOOK_S = 15, 1
"""The next look at a status is counted from the end of the one before, which a busy machine draws out."""


@claims("manual-node.healthy-means-all-services")
@needs(nodes=2, faulted=1, features=("proxy",), lasts="2G + 25")
def test_a_node_whose_kube_proxy_is_gone_is_ready_all_the_same(lab: Stage, judge: Judge) -> None:
    """Its kubelet reports each time that it looks at its status: it goes on saying Ready, and is not only
    left alone.
    """
    node, known = lab.target, lab.configuration
    unready = {"type": "Ready", "status": {"$not": "True"}}
    harmed = written("nodes", {"metadata": {"name": node}, "status": {"conditions": [unready]}})
    reports = changed("nodes", node, "status.conditions[].lastHeartbeatTime")
    update_s = known["U"]
    each_look = windows.formula("period", "U", "U - slack", f"1.04U + {LOOK_S} + slack")
    longer = windows.formula("negative", "2G", "0", "2G")

    with lab.record(), lab.inject(kubelet_settings(node, nodeStatusReportFrequency=f"{update_s:g}s")):
        service, port, endpoint, its_port = (
            lab.look(field_of(path, field)).value
            for path, field in (
                (KUBERNETES, "spec.clusterIP"),
                (KUBERNETES, "spec.ports"),
                (ENDPOINTS, "endpoints"),
                (ENDPOINTS, "ports"),
            )
        )
        by_service = api_at(node, service, port[0]["port"])
        directly = api_at(node, endpoint[0]["addresses"][0], its_port[0]["port"])
        with lab.inject(kube_proxy(node)) as proxy:
            reached = lab.look(by_service)
            # Whoever counts kube-proxy has to have seen it: the second report was begun after it served.
            first = next_of(reports, after=reached.came)
            for report, since in ((first, reached.came), (next_of(reports, after=first), first)):
                lab.wait_for(report.after(since, windows.prompt(REPORTED_S)))
        lost, there = lab.look(by_service), lab.look(directly)
        lab.wait_for(harmed.never_after(proxy.healed, windows.absence(2 * known["G"] + lab.clear_s)))
        still = lab.look(by_service)
    served = (reached.value, there.value) == (ANSWERS, ANSWERS)
    lab.expect(served, "one whose API answers its nodes", f"see the log of kube-proxy-{node}")
    gone = ANSWERS not in (lost.value, still.value)
    lab.expect(gone, "one where a Service needs a kube-proxy", "see what else answers at its address")

    judge("manual-node.healthy-means-all-services", harmed.never_after(proxy.healed, longer))
    told = spaced(reports, each_look, at_least=5, after=proxy.healed, until=still.came)
    judge("manual-node.healthy-means-all-services", told)
