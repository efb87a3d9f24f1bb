"""What kubectl shows of a node."""

from nodeproof.plugin import Judge
from nodeproof.scenario import PRESENT, Stage, claims, described, field_of, needs, shows

SYSTEM = {
    "Boot ID": "bootID",
    "Kernel Version": "kernelVersion",
    "Kubelet Version": "kubeletVersion",
    "Machine ID": "machineID",
}
ROOM, CONDITIONS = ("cpu", "memory", "pods"), ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")


@claims("info.describe-sections")
@needs(nodes=2)
def test_kubectl_describes_a_node_as_the_api_has_it(lab: Stage, judge: Judge) -> None:
    path = f"/api/v1/nodes/{lab.target}"

    with lab.record():
        room = {
            heading: {
                what: lab.look(field_of(path, f"status.{heading.lower()}.{what}")).value for what in ROOM
            }
            for heading in ("Capacity", "Allocatable")
        }
        system = {
            key: lab.look(field_of(path, f"status.nodeInfo.{field}")).value for key, field in SYSTEM.items()
        }
        seen = lab.look(described(lab.target))

    known = {"Conditions": dict.fromkeys(CONDITIONS, PRESENT), "Addresses": {"Hostname": lab.target}}
    for heading, told in {**room, "System Info": system, **known}.items():
        judge("info.describe-sections", shows(seen, {heading: told}))
