"""A service that runs on a node beside its kubelet, and does not count for the node's health."""

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, probes, windows

KUBERNETES = "/api/v1/namespaces/default/services/kubernetes"
ENDPOINTS = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
ANSWERS = "answers"
REPORTED_S, LOOK_S = 15, 1
"""The kubelet's next status check is timed from the end of the last one, which a busy machine delays."""


@needs(nodes=2, faulted=1, features=("proxy",), duration_s="2G + 25")
def test_node_without_kube_proxy_stays_ready(lab: Lab, claim: Expectations) -> None:
    """Its kubelet reports at each status check: it confirms Ready, which is not merely left unchanged."""
    node, update_s = lab.target, lab.configuration["U"]
    not_true = {"type": "Ready", "status": {"$not": "True"}}
    unready = moments.written("nodes", {"metadata": {"name": node}, "status": {"conditions": [not_true]}})
    report, all_services = node.status_report, claim("manual-node.healthy-means-all-services")
    update_period = windows.formula("period", "U", "U - slack", f"1.04U + {LOOK_S} + slack")

    with lab.record(), lab.inject(faults.kubelet_settings(node, nodeStatusReportFrequency=f"{update_s:g}s")):
        service = lab.observe(probes.field_of(KUBERNETES, "spec.clusterIP")).value
        service_ports = lab.observe(probes.field_of(KUBERNETES, "spec.ports")).value
        endpoints = lab.observe(probes.field_of(ENDPOINTS, "endpoints")).value
        endpoint_ports = lab.observe(probes.field_of(ENDPOINTS, "ports")).value
        by_service = probes.api_at(node, service, service_ports[0]["port"])
        directly = probes.api_at(node, endpoints[0]["addresses"][0], endpoint_ports[0]["port"])
        with lab.inject(faults.kube_proxy(node)) as proxy:
            with_proxy = lab.observe(by_service)
            # The second report began after kube-proxy served: it would take kube-proxy into account.
            first = moments.first_after(report, after=with_proxy.completed)
            lab.wait_for(first.after(with_proxy.completed, REPORTED_S))
            lab.wait_for(moments.first_after(report, after=first).after(first, REPORTED_S))
        without_proxy, direct = lab.observe(by_service), lab.observe(directly)
        is_served = (with_proxy.value, direct.value) == (ANSWERS, ANSWERS)
        silent, next_step = "the API server does not answer the node", f"see the log of kube-proxy-{node}"
        lab.require_lab(is_served, otherwise=silent, next_step=next_step)
        all_services.never(unready, throughout="2G", after=proxy.healed_at)
        end = lab.observe(by_service)
        is_stopped = ANSWERS not in (without_proxy.value, end.value)
        answers, next_step = "the Service answers without kube-proxy", "see what else answers at its address"
        lab.require_lab(is_stopped, otherwise=answers, next_step=next_step)
    without = {"after": proxy.healed_at, "until": end.completed}
    all_services.expect_later(checks.spaced(report, update_period, at_least=5, **without))
