"""A share of a node's swap: of how much it is, on which node, who tells it, and that it stays."""

import json

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    SWAP_LIMIT,
    Stage,
    Witness,
    amounts_to,
    became,
    claims,
    kubectl,
    kubelet_settings,
    meminfo,
    needs,
    resource_metric,
    restart_kubelet,
    run_witnesses,
    shows,
    swap,
    swap_limit,
    windows,
)

SWAP_MIB, RESERVED_MIB, REQUEST_MIB, MORE_MIB = 128, 64, 64, 72
PAGE = 4096
"""The kernel rounds a limit down to whole pages (bytes)."""
REFUSED_S = 15
REFUSAL = {
    "type": "PodResizePending",
    "reason": "Infeasible",
    "message": {"$contains": "resize of containers with swap is not supported"},
}


@claims(
    "swap.formula-no-reservation",
    "swap.per-node",
    "swap.resize-infeasible",
    "swap-metrics.container-limit",
)
@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), lasts="120")
def test_a_share_is_of_all_swap_of_its_own_node_and_is_told_and_stays(lab: Stage, judge: Judge) -> None:
    node = lab.target
    other = lab.others[0]
    limited = {"failSwapOn": False, "memorySwap": {"swapBehavior": "LimitedSwap"}}
    reserving = kubelet_settings(node, **limited, systemReserved={"memory": f"{RESERVED_MIB}Mi"})
    witness = Witness(resources={"requests": {"cpu": "50m", "memory": f"{REQUEST_MIB}Mi"}})

    with lab.record(), lab.inject(reserving), lab.inject(swap(node, SWAP_MIB)) as paging:
        lab.do(restart_kubelet(node))
        (sharing,), (elsewhere,) = (lab.do(run_witnesses(witness, on=each)) for each in (node, other))
        for pod in (sharing, elsewhere):
            lab.look(swap_limit(pod))
        total, swappable = (lab.look(meminfo(node, name)).value for name in ("MemTotal", "SwapTotal"))
        none = lab.look(meminfo(other, "SwapTotal"))
        exported = resource_metric(node, "container_swap_limit_bytes", pod=sharing.name, container="main")
        lab.look(exported)

        more = {"name": "main", "resources": {"requests": {"memory": f"{MORE_MIB}Mi"}}}
        patch = json.dumps({"spec": {"containers": [more]}})
        of_it = ("-n", sharing.namespace, sharing.name, "--subresource=resize")
        resize = kubectl("patch", "pod", *of_it, "--patch", patch)
        lab.do(resize)
        infeasible = became("pods", sharing.name, {"status": {"conditions": [REFUSAL]}}, sharing.namespace)
        refused = lab.wait_for(infeasible.after(resize.begun, windows.prompt(REFUSED_S)))

    share = (REQUEST_MIB << 20) * swappable // total
    since, until = paging.began, paging.healing
    gets = amounts_to(SWAP_LIMIT, sharing.name, share - PAGE, share, since, until)
    judge("swap.formula-no-reservation", gets)
    for check in (gets, amounts_to(SWAP_LIMIT, elsewhere.name, 0, 0, since, until), shows(none, 0)):
        judge("swap.per-node", check)
    told = amounts_to(exported.what, exported.subject, share - PAGE, share, since, until)
    judge("swap-metrics.container-limit", told)
    judge("swap.resize-infeasible", refused)
