"""A node that runs short of memory, of disk and of process ids, and for how long it says so afterwards."""

from typing import Any

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    claims,
    condition_became,
    condition_said,
    counted,
    field_of,
    kubelet_field,
    kubelet_settings,
    needs,
    shows,
    unit_up,
    windows,
)

MIB = 1 << 20
MEMORY, DISK, PIDS = 300 * MIB, 1024 * MIB, 300
KEPT_S = 40
"""evictionPressureTransitionPeriod."""
HOG = f"""
exec 3<>/dev/shm/nodeproof-hog 4<>/var/tmp/nodeproof-hog || exit 1
rm /dev/shm/nodeproof-hog /var/tmp/nodeproof-hog
fallocate -l {MEMORY} /proc/self/fd/3 && fallocate -l {DISK} /proc/self/fd/4 || exit 1
for each in $(seq {PIDS}); do sleep infinity & done
wait
"""
"""Files without a name, which the kernel takes back with the last process that has them open."""
SAID = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    "DiskPressure": ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
}
CLAIMS = {
    "MemoryPressure": "conditions.memory-pressure",
    "DiskPressure": "conditions.disk-pressure",
    "PIDPressure": "conditions.pid-pressure",
}
SAYS_SO = windows.formula("within", "22 + 1.04U", "-slack", "22 + 1.04U + slack")
"""The kubelet compares each 10 s (evictionMonitoringPeriod in pkg/kubelet/kubelet.go), and what it reports
each U; 12 s are for an emulated machine that has to take all of that first.
"""
GOES_ON = windows.formula("period", f"{KEPT_S}", f"{KEPT_S} - 12 - slack", f"{KEPT_S} + 14 + 1.04U + slack")
"""The period runs from when the pressure was last found, up to 10 s and a comparison before its end, until a
comparison finds that it is over; 2 s are for the end of all that was taken.
"""


def kept_free(told: dict[str, Any]) -> dict[str, str]:
    """Thresholds that half of what is taken is enough to fall below, by a kubelet's own figures."""
    ids = told["rlimit"]["maxpid"] - told["rlimit"]["curproc"]
    return {
        "memory.available": str(told["memory"]["availableBytes"] - MEMORY // 2),
        "nodefs.available": str(told["fs"]["availableBytes"] - DISK // 2),
        "pid.available": str(ids - PIDS // 2),
    }


@claims(*CLAIMS.values(), "conditions.pressure-damping")
@needs(nodes=2, faulted=1, features=("systemd",), lasts="130")
def test_a_node_that_runs_short_says_so_and_goes_on_saying_it_for_a_while(lab: Stage, judge: Judge) -> None:
    """No image is taken for garbage meanwhile, or later scenarios would have none."""
    node = lab.target
    short, enough = (
        {type_: condition_became(node, type_, status) for type_ in SAID} for status in ("True", "False")
    )
    says = {type_: condition_said(node, type_, "True", *words) for type_, words in SAID.items()}

    with lab.record():
        by_default = lab.look(kubelet_field(node, "evictionHard"))
        told = lab.look(field_of(f"/api/v1/nodes/{node}/proxy/stats/summary", "node"))
        watchful = kubelet_settings(
            node,
            evictionHard=kept_free(told.value),
            evictionPressureTransitionPeriod=f"{KEPT_S}s",
            imageMinimumGCAge="1h",
        )
        with lab.inject(watchful) as calm:
            with lab.inject(unit_up(node, HOG)) as hog:
                begins = {type_: lab.wait_for(says[type_].after(hog.ordered, SAYS_SO)) for type_ in SAID}
            ends = {type_: lab.wait_for(enough[type_].after(hog.healing, GOES_ON)) for type_ in SAID}

    for type_, claim in CLAIMS.items():
        not_before = counted(short[type_], 0, 0, after=calm.ordered, until=hog.ordered)
        all_the_while = counted(enough[type_], 0, 0, after=hog.ordered, until=hog.healing)
        for check in (not_before, begins[type_], all_the_while, ends[type_]):
            judge(claim, check)
        judge("conditions.pressure-damping", ends[type_])
    judge("conditions.pid-pressure", shows(by_default, {"memory.available": "100Mi"}))
    judge("conditions.pid-pressure", shows(by_default, {"pid.available": {"$present": False}}))
