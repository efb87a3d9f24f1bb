"""The machines that have a volume's disk."""

from __future__ import annotations

from nodeproof.faults.volumes import DISKS, handle
from nodeproof.labs.client.lab import Lab
from nodeproof.model.needs import ATTACHER
from nodeproof.probes.probe import Probe, output_of


def disk_holders(claim: str) -> Probe:
    """Return a probe of the running machines that have a claim's disk attached; needs the feature `volumes`.

    The hypervisor reports them, neither the driver nor the API.
    """

    def read(lab: Lab) -> list[str]:
        return output_of(lab, ATTACHER, ["sh", DISKS, "holders", handle(claim)]).split()

    return Probe("holders of the disk", claim, read)
