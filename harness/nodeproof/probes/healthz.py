"""What a kubelet answers that asks nobody who asks it."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of
from nodeproof.waiting import insist

_UP_LIMIT_S = 60.0
"""From a boot to a kubelet that serves, on an emulated machine."""

_ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3
"""


def healthz(machine: str, port: int) -> Probe:
    """What the kubelet of a machine answers on its healthzPort, asked from the machine itself as soon as it
    listens there.
    """

    def ask(lab: Lab) -> str:
        return output_of(lab, machine, ["bash", "-c", _ASK, str(port)]).strip()

    def read(lab: Lab) -> str:
        return insist(lambda: ask(lab), MachineError, limit_s=_UP_LIMIT_S, period_s=0.2)

    return Probe("/healthz", machine, read)
