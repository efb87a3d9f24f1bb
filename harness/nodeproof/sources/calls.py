"""Requests to a cluster's cloud and to its CSI driver, from the files in which these record them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nodeproof.faults.cloud import STARTED as CLOUD_STARTED
from nodeproof.faults.cloud import Cloud
from nodeproof.faults.volumes import handle
from nodeproof.machines.machine import MachineError
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import ATTACHER, CLOUD
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import Lost
from nodeproof.recording.node_messages import Message
from nodeproof.sources.source import (
    Source,
    SourceContext,
    SourceMessages,
    memory_losses,
    parse_lines,
    torn,
)

DRIVER_CALLS = f"{ATTACHER}/calls.jsonl"
DRIVER_STARTED = "Started"
"""First line of each driver, as in infra/csi/calls.py."""
_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Call:
    """A request about a node, answered at `t`; the driver's also have a volume, a code and their begin."""

    t: float
    method: str
    node: str
    volume: str = ""
    code: str = ""
    begin_t: float = 0.0


@dataclass(frozen=True)
class CloudCalls(Source):
    """Requests about a node to the cloud of the fault `cloud`.

    Of one method, such as `InstanceExists`, or of all.
    """

    node: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes node and method."""
        return f"cloud asked about {self.node}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The next of these requests."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the requests to the current cloud.

        Raises:
            MachineError: There is no cloud.
        """
        machine, until_t = context.lab.fleet.machine(CLOUD), time.monotonic()
        clouds = Cloud.leftovers_on(machine)
        if len(clouds) != 1:
            raise MachineError(f"expected one cloud, found {len(clouds)}")
        output = machine.run(["cat", f"{CLOUD}/cloud-{clouds[0].id}.calls"], timeout_s=_TIMEOUT_S)
        calls, losses = cloud_calls(output.stdout, context.history, until_t)
        messages = [
            Message(call.t, f"{call.method} {call.node}")
            for call in calls
            if call.node == self.node and self.method in ("", call.method)
        ]
        losses += memory_losses(context, until_t)
        return SourceMessages(messages, until_t, context.wall_error_s(until_t), losses)


@dataclass(frozen=True)
class VolumeCalls(Source):
    """Finished requests about a PVC's volume to the CSI driver of the fault `volumes`.

    Of one method, such as `ControllerUnpublishVolume`, or of all. Each message has method, node and code.
    """

    pvc: str
    method: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes PVC and method."""
        return f"driver asked about {self.pvc}{f' by {self.method}' if self.method else ''}"

    @property
    def call(self) -> Moment:
        """The end of the next of these requests."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the requests to the current driver.

        Raises:
            MachineError: There is no driver.
        """
        machine, until_t = context.lab.fleet.machine(ATTACHER), time.monotonic()
        output = machine.run(["cat", DRIVER_CALLS], timeout_s=_TIMEOUT_S)
        if output.status != 0:
            raise MachineError("the CSI driver has no record of calls")
        calls, losses = driver_calls(output.stdout, context.history.began_t, until_t)
        messages = [
            Message(call.t, f"{call.method} {call.node} {call.code}")
            for call in calls
            if call.volume == handle(self.pvc) and self.method in ("", call.method)
        ]
        return SourceMessages(messages, until_t, losses=[*losses, *memory_losses(context, until_t)])


def cloud_calls(text: str, history: History, until_t: float) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that was read at `until_t` (s), and the times of possible losses.

    A request is written before it is answered, and the provider writes a first line when it starts.
    """

    def parse(call: Json) -> Call:
        return Call(history.from_wall(call["time"]), str(call["method"]), str(call.get("node", "")))

    return _calls(text, parse, (history.began_t, until_t), "cloud", CLOUD_STARTED)


def driver_calls(text: str, began_t: float, until_t: float) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that was read at `until_t`, and possible losses since `began_t`.

    Both times are in s, monotonic. A request is written at its end, before it is answered; one that is cut
    off by a kill of the driver is not written.
    """

    def parse(call: Json) -> Call:
        method, node, volume, code = (str(call[name]) for name in ("method", "node", "volume", "code"))
        return Call(float(call["end"]), method, node, volume, code, float(call["begin"]))

    calls, losses = _calls(text, parse, (began_t, until_t), "driver", DRIVER_STARTED)
    why = "the driver restarted: a call that was interrupted is not recorded"
    restarts = [pair for pair in pairwise(calls) if pair[1].method == DRIVER_STARTED]
    losses += [Lost(last.t, start.begin_t, why) for last, start in restarts if start.begin_t >= began_t]
    return calls, losses


def _calls(
    text: str, parse: Callable[[Json], Call], recorded_span: tuple[float, float], whose: str, started: str
) -> tuple[Sequence[Call], list[Lost]]:
    """Return each request in a file that begins with `started`, and the times of possible losses."""
    parsed_lines = parse_lines(text, parse)
    calls = [call for call in parsed_lines if call is not None]
    if not calls or calls[0].method != started:
        began_t, until_t = recorded_span
        first_t = calls[0].t if calls else until_t
        return calls, [Lost(began_t, first_t, f"the start of the {whose}'s calls is missing")]
    times = [None if call is None else call.t for call in parsed_lines]
    losses = torn(times, recorded_span, f"a line of the {whose}'s calls is torn")
    if not text.endswith("\n") and times[-1] is not None:
        losses += torn([times[-1], None], recorded_span, f"the last line of the {whose}'s calls is torn")
    return calls, losses
