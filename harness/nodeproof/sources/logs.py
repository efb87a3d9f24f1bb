"""Lines of components' logs, of journals, and of witnesses."""

from __future__ import annotations

import mmap
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from nodeproof.artifacts.components import ROLES
from nodeproof.checks.witnessed import journal as journal_name
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.base.processes import CHECK_PERIOD_S
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model.history import History
from nodeproof.model.judgment import Moment
from nodeproof.model.needs import role_of
from nodeproof.model.pod_log import Lost
from nodeproof.model.problem import Problem
from nodeproof.recording.node_messages import Message, lines_of, messages_of
from nodeproof.sources.source import (
    Source,
    SourceContext,
    SourceMessages,
    joined,
    memory_losses,
    possible_losses,
    read_journal,
    torn,
)

_HEADER = re.compile(r"[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{6}) ")
"""Header of a klog line: level, month and day, time of day (k8s.io/klog/v2, `formatHeader`); no year."""
_TORN = re.compile(r".[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6}  *\d+ \S+\.go:\d+\] ")
"""Header inside a line: the line before it was cut off, for example by a full disk."""
_KUBELET = "kubelet-"
_UNIT = "kubelet.service"
_CUTS, _SHUT_DOWN = ("powered-off", "reset"), "powered itself off"
"""Entries of a machine's end, and of an orderly one (`nodeproof.labs.kinds.libvirt.guests`)."""
_HALF_A_YEAR_S = 183 * 86400.0
_MANAGER, _SKIPS = "kube-controller-manager", "Skipping - no pods will be evicted"
_MOST_QUOTED = 5


@dataclass(frozen=True)
class Log(Source):
    """The lines of `component` (kube-controller-manager, `kubelet-NODE`) that contain `text`.

    The text must be in the component's executable, which may be of another version: the absence of a text
    that the component cannot log proves nothing. `about` must be in the line as well: a variable part, such
    as a name.
    """

    component: str
    text: str
    about: str = ""

    @property
    def by(self) -> str:
        """Name of the source, which includes the text."""
        about = f" about {self.about!r}" if self.about else ""
        return f"log of {self.component}: {self.text!r}{about}"

    @property
    def line(self) -> Moment:
        """The next of these lines."""
        return self.next_message

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the log and its earlier part, or the journal of the present boot on a node with systemd.

        Raises:
            Problem: The component has no log, or its executable does not contain the text.
            MachineError: The node does not answer.
            OSError: The log cannot be read.
        """
        lab, is_kubelet = context.lab, self.component.startswith(_KUBELET)
        role = lab.kind.kubelet_role if is_kubelet else self.component
        in_journal = is_kubelet and _has_journal(lab, self._node)
        if role not in ROLES or not (in_journal or _logs(lab, self.component)):
            raise Problem(f"no component {self.component!r}", "Log(...)", f"use one of: {', '.join(ROLES)}")
        own = _kubelet_on(lab, self._node) if is_kubelet else None
        if not _contains(own or lab.components.path(role), self.text.encode()):
            reason = f"{self.component} has no text {self.text!r}"
            raise Problem(reason, "Log(...)", "use a text of its source, without variable parts")
        if in_journal:
            report = read_journal(context, self._node, _UNIT, context.present_clock(self._node))
        else:
            report = self._files(context)
        return replace(
            report, messages=[message for message in report.messages if self._matches(message.what)]
        )

    def _matches(self, line: str) -> bool:
        return self.text in line and self.about in line

    @property
    def _node(self) -> str:
        return self.component.removeprefix(_KUBELET)

    def _files(self, context: SourceContext) -> SourceMessages:
        """Return all lines in both parts of the log."""
        history, until_t = context.history, time.monotonic()
        messages = [
            Message(history.from_epoch(at), line) for at, line in _timed_lines(context.lab, self.component)
        ]
        losses = self._possible_losses(context, messages, until_t)
        return SourceMessages(messages, until_t, context.wall_error_s(until_t), losses)

    def _possible_losses(
        self, context: SourceContext, messages: Sequence[Message], until_t: float
    ) -> list[Lost]:
        """Return the times since the start of the recording for which the log may be incomplete."""
        complete_since_t = messages[0].t if messages else until_t
        has_earlier = any(earlier.exists() for earlier, _log in _logs(context.lab, self.component))
        if joined(context.history, self._node) and not has_earlier:
            complete_since_t = context.history.began_t
        name = f"the log of {self.component}"
        lost = [*self._truncated(context), *self._torn_lines(context, messages, until_t)]
        return [*possible_losses(context, name, complete_since_t, until_t), *lost]

    def _truncated(self, context: SourceContext) -> Iterator[Lost]:
        """Yield the time of a truncation of the log."""
        history, why = context.history, f"the log of {self.component} was truncated during the recording"
        earlier_logs = [earlier for earlier, _log in _logs(context.lab, self.component)]
        for earlier in filter(Path.exists, earlier_logs):
            truncated_t = history.from_epoch(earlier.stat().st_mtime)
            if truncated_t > history.began_t:
                yield Lost(truncated_t - CHECK_PERIOD_S, truncated_t + CHECK_PERIOD_S, why)

    def _torn_lines(
        self, context: SourceContext, messages: Sequence[Message], until_t: float
    ) -> Iterator[Lost]:
        """Yield the times of lines that a full disk truncated, up to the next line after them."""
        began_t = context.history.began_t
        why = f"a line of the log of {self.component} was torn: the disk was full"
        for line in messages:
            offsets = [match.start() + 1 for match in _TORN.finditer(line.what)]
            header_times = [_logged_at(line.what[at:]) for at in offsets]
            later_times = [context.history.from_epoch(at) for at in header_times if at is not None]
            if offsets and max(later_times, default=until_t) >= began_t:
                yield Lost(line.t, max(later_times, default=until_t), why)
        logs = [log for _earlier, log in _logs(context.lab, self.component)]
        if messages and not all(log.read_bytes().endswith(b"\n") for log in logs):
            yield Lost(messages[-1].t, max(until_t, messages[-1].t), why)


def _kubelet_on(lab: LabHandle, node: str) -> Path | None:
    """Return the executable that runs a node's kubelet; None if it is unknown, as for a node that left."""
    paths = (Path(entry.kubelet) for entry in lab.fleet.nodes() if entry.name == node and entry.kubelet)
    return next(paths, None)


def _has_journal(lab: LabHandle, node: str) -> bool:
    return "systemd" in lab.features and node in lab.fleet.node_names()


def _logs(lab: LabHandle, component: str) -> Sequence[tuple[Path, Path]]:
    """Return the earlier part and the log of each replica of a component; none if it has no log."""
    folder = lab.life.logs
    names = [path.name.removesuffix(".log") for path in sorted(folder.glob(f"{component}*.log"))]
    replicas = [name for name in names if component in (name, role_of(name))]
    return [(folder / f"{name}.log.1", folder / f"{name}.log") for name in replicas]


def _timed_lines(lab: LabHandle, component: str) -> Sequence[tuple[float, str]]:
    """Return each line with its time (s since the epoch), in the order of the times if there are replicas."""
    logs = _logs(lab, component)
    lines = [line for parts in logs for line in _lines_in(parts)]
    return sorted(lines, key=lambda line: line[0]) if len(logs) > 1 else lines


def _lines_in(parts: Sequence[Path]) -> Iterator[tuple[float, str]]:
    """Yield each line of the parts of a log with its time (s since the epoch).

    A line without a header has the time of the line before it.
    """
    line_time = 0.0
    for log in parts:
        for line in lines_of(log.read_bytes().decode(errors="replace")) if log.exists() else ():
            line_time = _logged_at(line) or line_time
            if line_time:
                yield line_time, line


def skipped_nodes(lab: LabHandle, history: History) -> Sequence[str]:
    """Return the first lines in which the controller manager logged during a recording that it skips a node.

    Such a node does not become Unknown. Since 1.37 the controller manager skips a node whose Lease was
    written but not renewed, or cannot be read (tryUpdateNodeHealth in
    pkg/controller/nodelifecycle/node_lifecycle_controller.go).

    Raises:
        OSError: The log cannot be read.
    """
    lines = [
        line
        for at, line in _timed_lines(lab, _MANAGER)
        if _SKIPS in line and history.began_t <= history.from_epoch(at) <= history.ended_t
    ]
    more = [f"and {len(lines) - _MOST_QUOTED} more"] if len(lines) > _MOST_QUOTED else []
    return [*lines[:_MOST_QUOTED], *more]


def _logged_at(line: str) -> float | None:
    """Return when a line was written (s since the epoch), in the year that is closest to now."""
    header = _HEADER.match(line)
    if header is None:
        return None
    now = datetime.now(UTC)
    month, day, hour, minute, second, micro = map(int, header.groups())
    for year in (now.year, now.year - 1, now.year + 1):
        try:
            at = datetime(year, month, day, hour, minute, second, micro, UTC).timestamp()
        except ValueError:
            continue
        if abs(at - now.timestamp()) < _HALF_A_YEAR_S:
            return at
    return None


def _contains(executable: Path, text: bytes) -> bool:
    """Return whether an executable contains a text; True for a script, which starts another executable."""
    with executable.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        return mapped[:2] == b"#!" or mapped.find(text) >= 0


@dataclass(frozen=True)
class Journal(Source):
    """Messages of a unit on a node in the boot whose clock was stored; needs the feature `systemd`."""

    node: str
    unit: str

    @property
    def by(self) -> str:
        """Name of the source in moments."""
        return journal_name(self.node, self.unit)

    def read(self, context: SourceContext) -> SourceMessages:
        """Read the messages with journalctl.

        Raises:
            MachineError: The journal cannot be read.
        """
        return read_journal(context, self.node, self.unit, context.clock(self.node))


@dataclass(frozen=True)
class WitnessMessages(Source):
    """The messages of a witness in the boot whose clock was stored."""

    pod: Pod

    @property
    def by(self) -> str:
        """The pod's name."""
        return self.pod.name

    def read(self, context: SourceContext) -> SourceMessages:
        """Read its file; its node must be up, in any boot.

        Raises:
            MachineError: The file cannot be read.
        """
        clock, machine = context.clock(self.pod.node), context.lab.fleet.machine(self.pod.node)
        until_t = time.monotonic()
        lines = messages_of(machine, self.pod.name, clock)
        messages = [line for line in lines if line is not None]
        record = f"the file of {self.pod.name}"
        times = [None if line is None else line.t for line in lines]
        losses = [
            *torn(times, (clock.offset_s, until_t), f"a line of {record} is torn"),
            *memory_losses(context, until_t),
        ]
        last_t = messages[-1].t if messages else clock.offset_s
        cut_t = _power_cut_t(context.history, self.pod.node, clock.offset_s)
        if cut_t is not None and cut_t > last_t:
            losses.append(Lost(last_t, cut_t, f"a power cut may have lost the end of {record}"))
        return SourceMessages(
            messages, until_t, clock.error_s, losses, node=self.pod.node, boot_id=clock.boot_id
        )


def _power_cut_t(history: History, node: str, boot_t: float) -> float | None:
    """Return when a boot ended without a shutdown (s), or None: data may not yet have been on its disk."""
    for entry in history.entries:
        own = (entry.data.get("name"), entry.data.get("step"))
        is_end = entry.data.get("node") == node and (own[0] == f"node-{node}" or own[1] in _CUTS)
        if is_end and entry.t > boot_t:
            return None if entry.data.get("status") == _SHUT_DOWN else entry.t
    return None
