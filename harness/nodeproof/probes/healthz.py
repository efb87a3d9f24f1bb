"""The answer of a kubelet that does not authenticate its clients."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.probes.probe import Probe, output_of
from nodeproof.waiting import insist

_UP_TIMEOUT_S = 60.0
"""From a boot to a kubelet that serves, on an emulated machine."""

_ASK = r"""
exec 3<>"/dev/tcp/127.0.0.1/$0" && printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3 && tail -n 1 <&3
"""


def healthz(machine: str, port: int) -> Probe:
    """Return a probe of a kubelet's answer on its healthzPort, read on the machine once it listens there."""

    def request(lab: Lab) -> str:
        return output_of(lab, machine, ["bash", "-c", _ASK, str(port)]).strip()

    def read(lab: Lab) -> str:
        return insist(lambda: request(lab), MachineError, limit_s=_UP_TIMEOUT_S, period_s=0.2)

    return Probe("/healthz", machine, read)
