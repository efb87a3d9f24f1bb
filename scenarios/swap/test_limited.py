"""Swap share of a container: its size, its node, its metric and its constancy."""

import json
from functools import partial

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, needs, probes
from nodeproof.scenario.kubernetes import Witness

SWAP_MIB, RESERVED_MIB, REQUEST_MIB, MORE_MIB = 128, 64, 64, 72
PAGE = 4096
"""The kernel rounds a limit down to whole pages (bytes)."""
NOT_SUPPORTED = {"$contains": "resize of containers with swap is not supported"}


@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), duration_s="120")
def test_swap_limit_is_share_of_node_swap_and_cannot_be_resized(lab: Lab, claim: Expectations) -> None:
    node, other = lab.target, lab.others[0]
    limited = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    reserving = faults.kubelet_settings(node, **limited, systemReserved={"memory": f"{RESERVED_MIB}Mi"})
    witness = Witness(resources={"requests": {"cpu": "50m", "memory": f"{REQUEST_MIB}Mi"}})
    per_node = claim("swap.per-node")

    with lab.record(), lab.inject(reserving), lab.inject(faults.swap(node, SWAP_MIB)) as paging:
        lab.run(actions.restart_kubelet(node))
        (sharing,) = lab.run(actions.run_witnesses(witness, on=node))
        (elsewhere,) = lab.run(actions.run_witnesses(witness, on=other))
        for pod in (sharing, elsewhere):
            lab.observe(probes.swap_limit(pod))
        total = lab.observe(probes.meminfo(node, "MemTotal")).value
        swappable = lab.observe(probes.meminfo(node, "SwapTotal")).value
        share = (REQUEST_MIB << 20) * swappable // total
        amount = partial(checks.amounts_to, since=paging.injected_at, until=paging.healing_at)
        sharing_share = amount(probes.SWAP_LIMIT, sharing.name, share - PAGE, share)
        claim("swap.formula-no-reservation").expect_later(sharing_share)
        per_node.expect_later(sharing_share)
        per_node.expect_later(amount(probes.SWAP_LIMIT, elsewhere.name, 0, 0))
        per_node.expect_value(lab.observe(probes.meminfo(other, "SwapTotal")), 0)

        limit = probes.resource_metric(node, "container_swap_limit_bytes", pod=sharing.name, container="main")
        lab.observe(limit)
        metric_share = amount(limit.what, limit.subject, share - PAGE, share)
        claim("swap-metrics.container-limit").expect_later(metric_share)

        container = {"name": "main", "resources": {"requests": {"memory": f"{MORE_MIB}Mi"}}}
        patch = json.dumps({"spec": {"containers": [container]}})
        target = ("-n", sharing.namespace, sharing.name, "--subresource=resize")
        resize = actions.kubectl("patch", "pod", *target, "--patch", patch)
        lab.run(resize)
        refusal = {"type": "PodResizePending", "reason": "Infeasible", "message": NOT_SUPPORTED}
        infeasible = sharing.became({"status": {"conditions": [refusal]}})
        claim("swap.resize-infeasible").expect(infeasible, within=15, after=resize.begun)
