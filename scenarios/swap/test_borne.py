"""A node that pages, and a kubelet that was told to bear it, and nothing else."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    SWAP_LIMIT,
    Stage,
    Witness,
    amounts_to,
    ask,
    became,
    claims,
    field_of,
    kubelet_field,
    kubelet_restarted,
    kubelet_settings,
    listed,
    meminfo,
    mounted,
    needs,
    pending_pod,
    restart_kubelet,
    run_witnesses,
    shows,
    swap,
    swap_limit,
    windows,
)

SIZES_MIB = (128, 96)
"""A Node keeps what a kubelet before reported: its new size has to be another."""
UP_S, RUNS_S = 60, 120
"""A kubelet reports a few seconds after its start; emulated, and with a pod's start behind it, much later."""
SECRETS, SECRET, VOLUME = "/api/v1/namespaces/nodeproof/secrets", "kept-off-swap", "kept"


@claims(
    "swap.fail-on-false-starts",
    "swap.node-capacity-field",
    "swap.default-behavior",
    "swap.secrets-on-disk",
)
@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), lasts="120")
def test_a_kubelet_that_bears_swap_starts_and_gives_pods_and_secrets_none(lab: Stage, judge: Judge) -> None:
    node = lab.target
    restart = kubelet_restarted(node)
    burstable = {"requests": {"cpu": "50m", "memory": "64Mi"}}

    with lab.record(), lab.inject(kubelet_settings(node, failSwapOn=False)):
        told = lab.look(field_of(f"/api/v1/nodes/{node}", "status.nodeInfo.swap.capacity")).value or 0
        size = next(size for size in SIZES_MIB if abs(told - (size << 20)) > 1 << 20)
        with lab.inject(swap(node, size)) as paging:
            total = lab.look(meminfo(node, "SwapTotal")).value
            lab.do(restart_kubelet(node))
            capacity = became("nodes", node, {"status": {"nodeInfo": {"swap": {"capacity": total}}}})
            reported = lab.wait_for(capacity.after(restart, windows.prompt(UP_S)))
            behaviour = lab.look(kubelet_field(node, "memorySwap.swapBehavior"))

            lab.do(ask("POST", SECRETS, {"metadata": {"name": SECRET}, "stringData": {"word": "nodeproof"}}))
            kept = {"name": VOLUME, "secret": {"secretName": SECRET}}
            holder = lab.do(pending_pod(only_on=node, volumes=[kept]))
            running = became("pods", holder.name, {"status": {"phase": "Running"}}, holder.namespace)
            runs = lab.wait_for(running.after(restart, windows.prompt(RUNS_S)))
            lab.look(mounted(holder, VOLUME))

            pods = lab.do(run_witnesses(Witness(), Witness(resources=burstable), on=node))
            for pod in pods:
                lab.look(swap_limit(pod))

    for check in (reported, runs):
        judge("swap.fail-on-false-starts", check)
    judge("swap.node-capacity-field", reported)
    judge("swap.default-behavior", shows(behaviour, None))
    for pod in pods:
        judge("swap.default-behavior", amounts_to(SWAP_LIMIT, pod.name, 0, 0, paging.began, paging.healing))
    for option in ("tmpfs", "noswap"):
        of_it = listed(f"mount of {VOLUME}", holder.name, option, paging.began, paging.healing)
        judge("swap.secrets-on-disk", of_it)
