"""DaemonSet pods on a cordoned node."""

from nodeproof.scenario import Expectations, Lab, actions, needs
from nodeproof.scenario.kubernetes import workload

SCHEDULING_S, CONTAINER_START_S = 10.0, 60.0
"""Time until the controller creates a pod and the scheduler binds it, and until a container runs (s).

A container on a virtual machine without KVM starts slowly.
"""


@needs(nodes=2, duration_s="6R")
def test_daemonset_pod_is_scheduled_on_cordoned_node_and_stays(lab: Lab, claim: Expectations) -> None:
    daemons, scheduled = workload("DaemonSet"), claim("cordon.daemonset-still-scheduled")
    bound, running = daemons.pod_written(spec={"nodeName": lab.target}), daemons.running_on(lab.target)

    with lab.record():
        lab.run(actions.kubectl("cordon", lab.target))
        lab.run(daemons.make)
        scheduled.expect(bound, within=SCHEDULING_S, after=daemons.make.begun)
        scheduled.expect(running, within=CONTAINER_START_S, after=bound)
        scheduled.never(daemons.deletion, throughout=lab.quiet_s, after=running)
