"""A kubelet that tolerates swap on its node, and does nothing else with it."""

from nodeproof.scenario import Expectations, Lab, actions, checks, faults, moments, needs, probes
from nodeproof.scenario.kubernetes import Pod, Witness

SIZES_MIB = (128, 96)
"""A Node keeps the capacity that an earlier kubelet reported, so the new size has to differ."""
UP_S, CONTAINER_START_S = 60, 120
"""A kubelet reports a few seconds after its start, and much later on an emulated machine and with a pod to
start.
"""
SECRETS, SECRET, VOLUME = "/api/v1/namespaces/nodeproof/secrets", "kept-off-swap", "kept"
IN_MEMORY = "in-memory"


@needs(nodes=2, faulted=1, features=("swap", "systemd", "real-pods"), duration_s="120")
def test_kubelet_that_tolerates_swap_gives_pods_none(lab: Lab, claim: Expectations) -> None:
    node, restart = lab.target, moments.kubelet_restarted(lab.target)
    no_swap, secrets = claim("swap.default-behavior"), claim("swap.secrets-on-disk")

    with lab.record(), lab.inject(faults.kubelet_settings(node, failSwapOn=False)):
        earlier = lab.observe(probes.node_field(node, "status.nodeInfo.swap.capacity")).value or 0
        size = next(size for size in SIZES_MIB if abs(earlier - (size << 20)) > 1 << 20)
        with lab.inject(faults.swap(node, size)) as fault:
            total = lab.observe(probes.meminfo(node, "SwapTotal")).value
            lab.run(actions.restart_kubelet(node))
            capacity = node.became({"status": {"nodeInfo": {"swap": {"capacity": total}}}})
            report = claim("swap.node-capacity-field").expect(capacity, within=UP_S, after=restart)
            claim("swap.fail-on-false-starts").expect_later(report)
            behavior = lab.observe(probes.kubelet_field(node, "memorySwap.swapBehavior"))
            no_swap.expect_value(behavior, None)

            pod = create_pod_with_volumes(lab)
            claim("swap.fail-on-false-starts").expect(pod.running, within=CONTAINER_START_S, after=restart)
            period = fault.injected_at, fault.healing_at
            for volume, expectation in ((VOLUME, secrets), (IN_MEMORY, claim("swap.memory-volumes"))):
                mount = probes.mounted(pod, volume)
                lab.observe(mount)
                for option in ("tmpfs", "noswap"):
                    expectation.expect_later(checks.listed(mount.what, mount.subject, option, *period))

            burstable = Witness(resources={"requests": {"cpu": "50m", "memory": "64Mi"}})
            for witness in lab.run(actions.run_witnesses(Witness(), burstable, on=node)):
                lab.observe(probes.swap_limit(witness))
                no_swap.expect_later(checks.amounts_to(probes.SWAP_LIMIT, witness.name, 0, 0, *period))


def create_pod_with_volumes(lab: Lab) -> Pod:
    """Create a Secret, and a pod that mounts it and a directory in memory."""
    secret = {"metadata": {"name": SECRET}, "stringData": {"word": "nodeproof"}}
    lab.run(actions.send_request("POST", SECRETS, secret))
    volume = {"name": VOLUME, "secret": {"secretName": SECRET}}
    in_memory = {"name": IN_MEMORY, "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}
    return lab.run(actions.pending_pod(only_on=lab.target, volumes=[volume, in_memory]))
