"""Messages of sources, and times at which a source may have lost some."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from infra.csi import calls as written
from nodeproof.artifacts.components import HOLLOW
from nodeproof.checks import witnessed
from nodeproof.checks.judge import judge
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model import window as windows
from nodeproof.model.history import Entry, History, parse_time
from nodeproof.model.pod_log import Lost
from nodeproof.recording.node_messages import BootClock, Message
from nodeproof.recording.recorder import Recording
from nodeproof.scenario.lab import ReportCollector
from nodeproof.sources import (
    DRIVER_STARTED,
    Call,
    CloudCalls,
    Journal,
    Log,
    Source,
    SourceContext,
    SourceMessages,
    VolumeCalls,
    WitnessMessages,
    cloud_calls,
    driver_calls,
    skipped_nodes,
    torn,
)
from tests.fakes import FakeMachine, fake_lab
from tests.unit.histories import NODE, Story, configuration
from tests.unit.sample_checks import CLAIM, CUT

SHUT_DOWN = "powered itself off"
KUBELET, UNTIL = "kubelet.service", math.inf
FULL = "lab x: its memory is full"
MANAGER, TEXT = "kube-controller-manager", "Controller detected"


def journal_of(*logged: tuple[float, str]) -> FakeMachine:
    """Return a node whose journal holds these lines, by their time since boot (s)."""
    messages = ({"__MONOTONIC_TIMESTAMP": str(int(t * 1e6)), "MESSAGE": text} for t, text in logged)
    lines = [f"{json.dumps(message)}\n" for message in messages]
    return FakeMachine(lambda argv: "".join(lines[:1] if "head" in argv[2] else lines), name=NODE)


def context_of(history: History, lab: LabHandle, boot_t: float = -100.0) -> SourceContext:
    """Return the source context of a node that booted at a time (s)."""
    clock = BootClock("b", boot_t, 0.01)
    return SourceContext(lab, history, lambda _node: clock, lambda _node: clock)


def lab_with(parts: Mapping[str, object], full: Sequence[str] = ()) -> LabHandle:
    return fake_lab({"life.full_parts": lambda **_since: list(full), **parts})


def journal(story: Story, machine: FakeMachine, boot_t: float, full: Sequence[str] = ()) -> SourceMessages:
    lab = lab_with({"fleet.machine": lambda _name: machine}, full)
    return Journal(NODE, KUBELET).read(context_of(story.history(), lab, boot_t))


def times(reading: SourceMessages) -> list[tuple[float, float]]:
    return [(lost.since_t, lost.until_t) for lost in reading.losses]


@pytest.mark.parametrize(
    ("logged", "lost"),
    [
        ([(1.0, "Linux version"), (120.0, "a")], []),
        ([(140.0, "Vacuuming done"), (150.0, "a")], [(0.0, 40.0)]),
        ([], [(0.0, UNTIL)]),
    ],
    ids=["begins before the recording", "vacuumed", "empty"],
)
def test_journal_lacks_everything_before_its_first_line(
    logged: Sequence[tuple[float, str]], lost: Sequence[tuple[float, float]]
) -> None:
    read = journal(Story(), journal_of(*logged), -100.0)
    assert times(read) == [(since_t, min(until_t, read.until_t)) for since_t, until_t in lost]
    assert all("starts after the recording" in loss.why for loss in read.losses) or not logged


def test_full_memory_may_have_lost_messages() -> None:
    read = journal(Story(), journal_of((1.0, "Linux version")), -100.0, [FULL])
    (lost,) = read.losses
    assert (lost.why, lost.since_t < 0.0, lost.until_t) == (FULL, True, read.until_t)
    assert [lost.why for lost in witness(STARTED, full=[FULL]).losses] == [FULL]


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ([("powered-off", 20.0), ("booted", 25.0)], [(0.0, 25.0)]),
        ([("restored", 25.0)], [(0.0, 25.0)]),
        ([("joining", 20.0), ("booted", 25.0)], []),
        ([("joining", 10.0), ("booted", 11.0), ("powered-off", 20.0), ("booted", 25.0)], [(0.0, 25.0)]),
        ([], [(0.0, 32.0)]),
        ([("booted", 25.0), ("booted", 50.0)], [(0.0, 25.0), (50.0, UNTIL)]),
    ],
    ids=["booted", "restored", "joined", "joined and booted", "by itself", "booted again"],
)
def test_journal_of_a_boot_lacks_everything_before_it(
    steps: Sequence[tuple[str, float]], lost: Sequence[tuple[float, float]]
) -> None:
    """The kernel began at 30 s."""
    story = Story()
    for step, t in steps:
        story.say(t, "machine", node=NODE, step=step)
    read = journal(story, journal_of((2.0, "Linux version"), (9.0, "a")), 30.0)
    ends = {read.until_t: UNTIL}
    assert [(since_t, ends.get(until_t, until_t)) for since_t, until_t in times(read)] == lost


@pytest.mark.parametrize("retained_since_t", [40.0, -1.0])
def test_retained_line_proves_its_own_time(retained_since_t: float) -> None:
    """A kubelet was refused at 22 s, and its journal up to `retained_since_t` was deleted."""
    refused = witnessed.logged(NODE, KUBELET, "refused")
    logged = [
        (t, text) for t, text in ((-2.0, "a"), (22.0, "refused"), (40.0, "b")) if t >= retained_since_t - 1
    ]
    for check, truth in (
        (refused.never_after(CUT, windows.absence(5.0)), "deviates"),
        (refused.after(CUT, windows.up_to(5.0)), "conforms"),
    ):
        story = Story().renewals(2.0, 60.0).fault(20.0, "planned", "armed", "injecting", "injected")
        read = journal(story, journal_of(*((t + 100.0, text) for t, text in logged)), -100.0)
        for word in read.messages:
            story.tell(word.what, word.t, by=f"{NODE}/{KUBELET}")
        story.hear(59.0, f"{NODE}/{KUBELET}", read.error_s, read.losses)
        verdict = judge(CLAIM, check, story.fence(60.0).history(), configuration())
        assert verdict.label == ("unproven: gap" if retained_since_t > 0 else truth), verdict.reason


# The file of a witness


def witness(text: str, *steps: Mapping[str, Any], full: Sequence[str] = ()) -> SourceMessages:
    """Return the messages in a file of a node that booted at -100 s."""
    story = Story()
    for step in steps:
        story.say(**{"node": NODE, **step})
    lab = lab_with({"fleet.machine": lambda _name: FakeMachine(lambda _argv: text, name=NODE)}, full)
    return WitnessMessages(Pod("default", "pod-1", NODE)).read(context_of(story.history(), lab))


STARTED = "101.00 started\n"


@pytest.mark.parametrize(
    ("text", "messages", "lost"),
    [
        (f"{STARTED}120.25 beat\n", [(1.0, "started"), (20.25, "beat")], []),
        (f"{STARTED}12", [(1.0, "started")], [(1.0, UNTIL)]),
        (f"{STARTED}120.20 SIG", [(1.0, "started")], [(1.0, UNTIL)]),
        (f"{STARTED}\0\0\0\0", [(1.0, "started")], [(1.0, UNTIL)]),
        (f"{STARTED}\n", [(1.0, "started")], [(1.0, UNTIL)]),
        (f"{STARTED}x\n120.00 beat\n", [(1.0, "started"), (20.0, "beat")], [(1.0, 20.0)]),
        ("\0\0\n120.00 beat\n", [(20.0, "beat")], [(-100.0, 20.0)]),
        ("", [], [(-100.0, UNTIL)]),
    ],
    ids=["whole", "time", "message", "zeros", "blank", "middle", "beginning", "empty"],
)
def test_torn_line_of_a_witness_is_a_loss(
    text: str, messages: Sequence[tuple[float, str]], lost: Sequence[tuple[float, float]]
) -> None:
    read = witness(text)
    assert [(message.t, message.what) for message in read.messages] == messages
    assert times(read) == [(since_t, min(until_t, read.until_t)) for since_t, until_t in lost]


OFF, RESET = ({"t": 40.0, "kind": "machine", "step": step} for step in ("powered-off", "reset"))


@pytest.mark.parametrize(
    ("steps", "lost"),
    [
        ((OFF,), [(1.0, 40.0)]),
        ((RESET,), [(1.0, 40.0)]),
        (({"t": 40.0, "kind": "component", "name": f"node-{NODE}", "status": "crashed"},), [(1.0, 40.0)]),
        (({"t": 30.0, "kind": "component", "name": f"node-{NODE}", "status": SHUT_DOWN}, OFF), []),
        (({**OFF, "t": -101.0},), []),
        (({**OFF, "node": "node-2"},), []),
        (({"t": 40.0, "kind": "machine", "step": "link-down"},), []),
    ],
    ids=["power cut", "reset", "crash", "shutdown", "earlier boot", "another node", "no end"],
)
def test_power_cut_may_lose_the_end_of_a_witness_file(
    steps: Sequence[Mapping[str, Any]], lost: Sequence[tuple[float, float]]
) -> None:
    assert times(witness(STARTED, *steps)) == lost


# A component's log

OFFSET_S = round(time.time()) - 100.0
"""The recording is of these days: a log's lines have no year."""


def klog(t: float, text: str = f"{TEXT} x") -> str:
    at = datetime.fromtimestamp(t + OFFSET_S, UTC)
    return f"I{at:%m%d %H:%M:%S.%f}       1 a.go:1] {text}"


def log(
    folder: Path, text: str, *steps: Entry, component: str = MANAGER, full: Sequence[str] = ()
) -> SourceMessages:
    """Return the messages of a log with this text."""
    (folder / f"{component}.log").write_bytes(text.encode())
    executable = folder / "executable"
    executable.write_bytes(b"\x7fELF " + TEXT.encode())
    parts: dict[str, object] = {
        "life.logs": folder,
        "components.path": lambda _role: executable,
        "kind.kubelet_role": HOLLOW,
        "features": frozenset(),
    }
    lab = lab_with({**parts, "fleet.nodes": list, "fleet.node_names": list}, full)
    history = History.of([Entry(0.0, "begun", {"wall_offset_s": OFFSET_S}), *steps])
    return Log(component, TEXT).read(context_of(history, lab))


def earlier_log(folder: Path, component: str, text: str, until_t: float) -> None:
    """Write a log that was truncated at a time (s)."""
    path = folder / f"{component}.log.1"
    path.write_text(f"{text}\n")
    os.utime(path, (OFFSET_S + until_t,) * 2)


def test_torn_line_is_a_loss_at_its_time(tmp_path: Path) -> None:
    read = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0)[:-4]}{klog(20.0)}\n{klog(30.0)}\n")
    assert [(round(since_t), round(until_t)) for since_t, until_t in times(read)] == [(10, 20)]
    assert "torn" in read.losses[0].why


def test_log_with_an_incomplete_last_line_may_lack_more(tmp_path: Path) -> None:
    read = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0)}\n{klog(30.0)}")
    ((since_t, until_t),) = times(read)
    assert (round(since_t), until_t) == (30, read.until_t)


def test_truncated_log_reports_when(tmp_path: Path) -> None:
    earlier_log(tmp_path, MANAGER, klog(-5.0), 25.0)
    assert times(log(tmp_path, f"{klog(30.0)}\n")) == [(24.0, 26.0)]


def test_log_without_its_beginning_lacks_it_except_on_a_joined_node(tmp_path: Path) -> None:
    ((since_t, until_t),) = times(log(tmp_path, f"{klog(30.0)}\n"))
    assert (since_t, round(until_t)) == (0.0, 30)
    joined, component = Entry(20.0, "machine", {"node": NODE, "step": "joining"}), f"kubelet-{NODE}"
    assert log(tmp_path, f"{klog(30.0)}\n", joined, component=component).losses == []
    earlier_log(tmp_path, component, klog(40.0), -1.0)
    ((since_t, until_t),) = times(log(tmp_path, f"{klog(50.0)}\n", joined, component=component))
    assert (since_t, round(until_t)) == (0.0, 40)


def test_unicode_line_separators_do_not_end_a_line(tmp_path: Path) -> None:
    odd = f"{TEXT} a\x85b\u2028c\rd\x0be"
    read = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0, odd)}\n")
    assert [word.what.partition("] ")[2] for word in read.messages] == [f"{TEXT} x", odd]


SKIPPED = "Update health of Node from Controller error, Skipping - no pods will be evicted"


def skipped(folder: Path, *lines: str) -> Sequence[str]:
    """Return the times and texts of the quoted lines of a controller manager's log."""
    (folder / f"{MANAGER}.log").write_text("\n".join(lines) + "\n")
    entries = [Entry(0.0, "begun", {"wall_offset_s": OFFSET_S}), Entry(50.0, "ended", {})]
    return skipped_nodes(fake_lab({"life.logs": folder}), History.of(entries))


def test_nodes_that_were_skipped_during_the_recording_are_quoted(tmp_path: Path) -> None:
    during = klog(20.0, f'{SKIPPED} node="{NODE}"')
    quoted = skipped(tmp_path, klog(-5.0, SKIPPED), klog(10.0), during, klog(60.0, SKIPPED))
    assert quoted == [during]


def test_many_skips_are_quoted_in_part(tmp_path: Path) -> None:
    lines = [klog(10.0 + number, SKIPPED) for number in range(30)]
    quoted = skipped(tmp_path, *lines)
    assert quoted[:-1] == lines[: len(quoted) - 1]
    assert quoted[-1] == f"and {len(lines) - len(quoted) + 1} more"


def test_lab_without_a_log_of_its_controller_manager_skipped_nothing(tmp_path: Path) -> None:
    assert skipped_nodes(fake_lab({"life.logs": tmp_path}), Story().history()) == []


# Any record


@pytest.mark.parametrize(
    ("line_times", "lost"),
    [
        ([1.0, 2.0], []),
        ([1.0, None, 2.0], [(1.0, 2.0)]),
        ([None, 2.0], [(0.5, 2.0)]),
        ([1.0, None], [(1.0, 9.0)]),
        ([None], [(0.5, 9.0)]),
        ([1.0, None, None, 4.0], [(1.0, 4.0), (1.0, 4.0)]),
    ],
)
def test_torn_line_is_lost_between_its_neighbours(
    line_times: Sequence[float | None], lost: Sequence[tuple[float, float]]
) -> None:
    lines = [None if t is None else Message(t, "") for t in line_times]
    assert torn(lines, (0.5, 9.0), "torn") == [Lost(*span, "torn") for span in lost]


@dataclass
class Recorded:
    """A recording that has ended except for collections."""

    story: Story = field(default_factory=Story)

    def history(self) -> History:
        return self.story.history()

    def append(self, kind: str, t: float, **data: Any) -> None:
        self.story.say(t, kind, **data)


@dataclass(frozen=True)
class SourceOfBoot(Source):
    """A source with one message, from a node or not."""

    node: str
    by: str = "a journal"

    def read(self, _context: SourceContext) -> SourceMessages:
        return SourceMessages((Message(5.0, "it began"),), 10.0, 0.01, node=self.node, boot_id="one")


@pytest.mark.parametrize(
    ("boot_id", "step", "words"),
    [
        (NODE, "frozen", 0),
        (NODE, "thawed", 0),
        (NODE, "booted", 1),
        ("another", "frozen", 1),
        ("", "frozen", 1),
    ],
)
def test_probe_pod_messages_of_a_suspended_node_have_no_time(boot_id: str, step: str, words: int) -> None:
    recorded = Recorded()
    recorded.story.say(3.0, "machine", node=NODE, step=step)
    ReportCollector(cast(LabHandle, None)).collect(cast(Recording, recorded), SourceOfBoot(boot_id))
    history = recorded.history()
    assert len(history.of_kind("told")) == words
    (collection,) = history.of_kind("heard")
    assert bool(collection.data["unsure"]) is (words == 0)


# Calls of the CSI driver and of the cloud


def call(method: str, at: float) -> str:
    data = {"method": method, "volume": "np-1", "node": NODE, "begin": at, "end": at + 1, "code": "OK"}
    return json.dumps(data) + "\n"


def cloud_call(method: str, second: int) -> str:
    data = {"time": f"2026-11-24T20:00:{second:02}.000000Z", "method": method, "node": NODE}
    return json.dumps(data) + "\n"


Read = Callable[[str], tuple[Sequence[Call], list[Lost]]]
BEGAN_T, READ_T = 15.0, 30.0
CLOUD_OFFSET_S = parse_time("2026-11-24T20:00:00Z")


def of_driver(text: str) -> tuple[Sequence[Call], list[Lost]]:
    return driver_calls(text, BEGAN_T, READ_T)


def of_cloud(text: str) -> tuple[Sequence[Call], list[Lost]]:
    begun = Entry(BEGAN_T, "begun", {"wall_offset_s": CLOUD_OFFSET_S})
    return cloud_calls(text, History.of([begun]), READ_T)


BEGUN, STAGED = call(DRIVER_STARTED, 10), call("NodeStageVolume", 20)
CLOUD_BEGUN, ASKED = cloud_call("Initialize", 20), cloud_call("InstanceExists", 21)


def test_calls_are_read_in_order() -> None:
    """A restart of the driver before the recording does not matter."""
    calls, unsure = of_driver(BEGUN + call(written.STARTED, 14) + STAGED)
    assert [(call.method, call.node, call.t) for call in calls] == [
        (DRIVER_STARTED, NODE, 11),
        (DRIVER_STARTED, NODE, 15),
        ("NodeStageVolume", NODE, 21),
    ]
    assert unsure == []
    calls, unsure = of_cloud(CLOUD_BEGUN + ASKED)
    assert [(call.method, call.node, call.t) for call in calls] == [
        ("Initialize", NODE, 20),
        ("InstanceExists", NODE, 21),
    ]
    assert unsure == []


@pytest.mark.parametrize(
    ("read", "text", "since_t", "until_t", "why"),
    [
        (of_driver, "", 15, 30, "calls is missing"),
        (of_driver, STAGED, 15, 21, "calls is missing"),
        (of_driver, BEGUN + STAGED[:-1], 21, 30, "last line of the driver's calls is torn"),
        (of_driver, BEGUN + STAGED[9:] + STAGED, 11, 21, "a line of the driver's calls is torn"),
        (of_driver, f'{BEGUN}{{"method": "x"}}\n', 11, 30, "a line of the driver's calls is torn"),
        (of_driver, BEGUN + call(DRIVER_STARTED, 15) + STAGED, 11, 15, "the driver restarted"),
        (of_cloud, ASKED, 15, 21, "calls is missing"),
        (of_cloud, CLOUD_BEGUN + ASKED[20:] + ASKED, 20, 21, "a line of the cloud's calls is torn"),
    ],
)
def test_incomplete_calls_report_the_time_of_the_loss(
    read: Read, text: str, since_t: float, until_t: float, why: str
) -> None:
    (lost,) = read(text)[1]
    assert (lost.since_t, lost.until_t) == (since_t, until_t)
    assert why in lost.why


@pytest.mark.parametrize("source", [CloudCalls, VolumeCalls])
def test_calls_of_each_method_have_their_own_name(source: type[CloudCalls | VolumeCalls]) -> None:
    assert source("a").by != source("a", "NodeStageVolume").by
