"""Nodes that run short of memory, disk or process IDs, and how long they report the pressure."""

from typing import Any

from nodeproof.scenario import Expectations, Lab, checks, faults, moments, needs, probes, windows
from nodeproof.scenario.types import Moment

MIB = 1 << 20
MEMORY, DISK, PIDS = 300 * MIB, 1024 * MIB, 300
PERIOD_S = 40
"""evictionPressureTransitionPeriod."""
HOG = f"""
exec 3<>/dev/shm/nodeproof-hog 4<>/var/tmp/nodeproof-hog || exit 1
rm /dev/shm/nodeproof-hog /var/tmp/nodeproof-hog
fallocate -l {MEMORY} /proc/self/fd/3 && fallocate -l {DISK} /proc/self/fd/4 || exit 1
for each in $(seq {PIDS}); do sleep infinity & done
systemd-notify --ready || exit 1
wait
"""
"""Unlinked files; the kernel frees their space when the last process that has them open ends."""
MESSAGES = {
    "MemoryPressure": ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    "DiskPressure": ("KubeletHasDiskPressure", "kubelet has disk pressure"),
    "PIDPressure": ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
}
REPORTED = "12 + 1.04U"
"""The kubelet compares every 10 s (evictionMonitoringPeriod in pkg/kubelet/kubelet.go) and reports every U.
Half of the allocation crosses the thresholds, so it may report before all of it is done.
"""


@needs(nodes=2, faulted=1, features=("systemd",), duration_s="130")
def test_pressure_is_reported_until_transition_period_ends(lab: Lab, claim: Expectations) -> None:
    """The setting imageMinimumGCAge protects the images, which later scenarios need."""
    node = lab.target
    pressures = {
        "MemoryPressure": claim("conditions.memory-pressure"),
        "DiskPressure": claim("conditions.disk-pressure"),
        "PIDPressure": claim("conditions.pid-pressure"),
    }

    with lab.record():
        thresholds = lab.observe(probes.kubelet_field(node, "evictionHard"))
        for default in ({"memory.available": "100Mi"}, {"pid.available": {"$present": False}}):
            pressures["PIDPressure"].expect_value(thresholds, default)
        stats = lab.observe(probes.field_of(f"/api/v1/nodes/{node}/proxy/stats/summary", "node"))
        kubelet = faults.kubelet_settings(
            node,
            evictionHard=eviction_thresholds(stats.value),
            evictionPressureTransitionPeriod=f"{PERIOD_S}s",
            imageMinimumGCAge="1h",
        )
        with lab.inject(kubelet) as restart:
            with lab.inject(faults.unit_up(node, HOG)) as hog:
                allocation_s = duration_s(lab, hog.requested_at, hog.injected_at)
                reported = windows.up_to(f"{allocation_s:.1f} + {REPORTED}")
                for kind, pressure in pressures.items():
                    beginning = node.condition(kind, "True")
                    none = checks.counted(beginning, 0, 0, after=restart.requested_at, until=hog.requested_at)
                    pressure.expect_later(none)
                    report = moments.condition_reported(node, kind, "True", *MESSAGES[kind])
                    pressure.expect(report, within=reported, after=hog.requested_at)
            window = cleared(duration_s(lab, hog.healing_at, hog.healed_at))
            for kind, pressure in pressures.items():
                end = node.condition(kind, "False")
                pressure.expect_none(end, after=hog.requested_at, until=hog.healing_at)
                damping = pressure.expect(end, within=window, after=hog.healing_at)
                claim("conditions.pressure-damping").expect_later(damping)


def duration_s(lab: Lab, begin: Moment, end: Moment) -> float:
    """Return how long a step of the fault took (s), which may be long on an emulated machine."""
    begin_t, end_t = (step.t for step in map(lab.find, (begin, end)) if step)
    return end_t - begin_t


def cleared(freeing_s: float) -> windows.WindowSpec:
    """Return the window of the end of pressure, counted from the healing, which takes `freeing_s`.

    The period starts when pressure was last observed, up to 10 s and a comparison before it ends or while the
    allocations are freed, and lasts until a comparison finds no pressure.
    """
    low, high = f"{PERIOD_S} - 12 - slack", f"{PERIOD_S} + 12 + {freeing_s:.1f} + 1.04U + slack"
    return windows.formula("period", f"{PERIOD_S}", low, high)


def eviction_thresholds(stats: dict[str, Any]) -> dict[str, str]:
    """Return eviction thresholds that half of the allocations cross, by the kubelet's own figures."""
    ids = stats["rlimit"]["maxpid"] - stats["rlimit"]["curproc"]
    return {
        "memory.available": str(stats["memory"]["availableBytes"] - MEMORY // 2),
        "nodefs.available": str(stats["fs"]["availableBytes"] - DISK // 2),
        "pid.available": str(ids - PIDS // 2),
    }
