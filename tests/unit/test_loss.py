"""In which times a source may have lost something, by what is left of its record."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof.artifacts.components import ROLES
from nodeproof.checks import witnessed
from nodeproof.checks.judge import judge
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import CommandResult
from nodeproof.model import window as windows
from nodeproof.model.history import Entry, History
from nodeproof.model.testimony import Lost
from nodeproof.recording.testimony import BootClock
from nodeproof.sources.journal import Journal
from nodeproof.sources.log import Log
from nodeproof.sources.loss import torn
from nodeproof.sources.source import Hearing, Told
from tests.unit.given import CLAIM, CUT
from tests.unit.histories import NODE, Story, configuration

Json = Any
KUBELET, UNTIL = "kubelet.service", math.inf
FULL = "lab x: its memory is full"
MANAGER, TEXT = "kube-controller-manager", "Controller detected"


class Machine:
    """A node whose journal holds these lines, by their time since boot (s)."""

    name = NODE

    def __init__(self, *logged: tuple[float, str]) -> None:
        self._lines = [
            json.dumps({"__MONOTONIC_TIMESTAMP": str(int(t * 1e6)), "MESSAGE": text}) for t, text in logged
        ]

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:  # noqa: ARG002
        lines = self._lines[:1] if "head" in argv[2] else self._lines
        return CommandResult(0, "".join(f"{line}\n" for line in lines), "")


def hearing(history: History, lab: Json, boot_t: float = -100.0) -> Hearing:
    """A hearing of a node that booted at a time (s)."""
    clock = BootClock("b", boot_t, 0.01)
    return Hearing(cast("Lab", lab), history, lambda _node: clock, lambda _node: clock)


def lab_of(machine: Machine, full: Sequence[str] = ()) -> Json:
    fleet = SimpleNamespace(machine=lambda _name: machine)
    return SimpleNamespace(fleet=fleet, life=SimpleNamespace(full=lambda **_since: list(full)))


def journal(story: Story, machine: Machine, boot_t: float, full: Sequence[str] = ()) -> Told:
    return Journal(NODE, KUBELET).read(hearing(story.history(), lab_of(machine, full), boot_t))


def times(told: Told) -> list[tuple[float, float]]:
    return [(lost.since_t, lost.until_t) for lost in told.unsure]


def test_a_journal_that_begins_before_the_recording_is_whole() -> None:
    assert journal(Story(), Machine((1.0, "Linux version"), (120.0, "a")), -100.0).unsure == []


def test_a_journal_whose_beginning_was_deleted_lacks_what_came_before_its_first_line() -> None:
    told = journal(Story(), Machine((140.0, "Vacuuming done"), (150.0, "a")), -100.0)
    assert times(told) == [(0.0, 40.0)]
    assert "starts after the recording" in told.unsure[0].why


def test_an_empty_journal_lacks_all_of_it() -> None:
    told = journal(Story(), Machine(), -100.0)
    assert times(told) == [(0.0, told.until_t)]


def test_a_full_memory_may_have_taken_lines_of_a_journal() -> None:
    told = journal(Story(), Machine((1.0, "Linux version")), -100.0, [FULL])
    assert [lost.why for lost in told.unsure] == [FULL]
    assert told.unsure[0].since_t < 0.0
    assert told.unsure[0].until_t == told.until_t


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
def test_a_journal_of_a_boot_lacks_what_was_logged_before_that(
    steps: Sequence[tuple[str, float]], lost: Sequence[tuple[float, float]]
) -> None:
    """The kernel began at 30 s."""
    story = Story()
    for step, t in steps:
        story.say(t, "machine", node=NODE, step=step)
    told = journal(story, Machine((2.0, "Linux version"), (9.0, "a")), 30.0)
    ends = {told.until_t: UNTIL}
    assert [(since_t, ends.get(until_t, until_t)) for since_t, until_t in times(told)] == lost


@pytest.mark.parametrize("kept_since_t", [40.0, -1.0])
def test_a_kept_line_alone_tells_when_it_came(kept_since_t: float) -> None:
    """A kubelet was refused at 22 s, and its journal up to `kept_since_t` was deleted."""
    refused = witnessed.logged(NODE, KUBELET, "refused")
    logged = [(t, text) for t, text in ((-2.0, "a"), (22.0, "refused"), (40.0, "b")) if t >= kept_since_t - 1]
    for check, truth in (
        (refused.never_after(CUT, windows.absence(5.0)), "deviates"),
        (refused.after(CUT, windows.prompt(5.0)), "conforms"),
    ):
        story = Story()
        story.renewals(2.0, 60.0)
        story.fault(20.0, "planned", "armed", "injecting", "injected")
        told = journal(story, Machine(*((t + 100.0, text) for t, text in logged)), -100.0)
        for word in told.words:
            story.tell(word.what, word.t, by=f"{NODE}/{KUBELET}")
        story.hear(59.0, f"{NODE}/{KUBELET}", told.error_s, told.unsure)
        verdict = judge(CLAIM, check, story.fence(60.0).history(), configuration())
        assert verdict.label == ("unproven: gap" if kept_since_t > 0 else truth), verdict.reason


# A component's log


OFFSET_S = round(time.time()) - 100.0
"""Of a recording of these days: a log's lines have no year."""


def klog(t: float, text: str = f"{TEXT} x") -> str:
    at = datetime.fromtimestamp(t + OFFSET_S, UTC)
    return f"I{at:%m%d %H:%M:%S.%f}       1 a.go:1] {text}"


def log(folder: Path, text: str, *steps: Entry, component: str = MANAGER, full: Sequence[str] = ()) -> Told:
    """What a log with this text tells."""
    (folder / f"{component}.log").write_bytes(text.encode())
    executable = folder / "executable"
    executable.write_bytes(b"\x7fELF " + TEXT.encode())
    lab = SimpleNamespace(
        life=SimpleNamespace(logs=folder, full=lambda **_since: list(full)),
        components=SimpleNamespace(path=lambda _role: executable),
        kind=SimpleNamespace(is_hollow=True),
        features=frozenset(),
        fleet=SimpleNamespace(node_names=list),
    )
    assert MANAGER in ROLES
    history = History.of([Entry(0.0, "begun", {"wall_offset_s": OFFSET_S}), *steps])
    return Log(component, TEXT).read(hearing(history, lab))


def test_a_log_says_when_a_line_was_torn_and_no_more(tmp_path: Path) -> None:
    told = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0)[:-4]}{klog(20.0)}\n{klog(30.0)}\n")
    assert [(round(since_t), round(until_t)) for since_t, until_t in times(told)] == [(10, 20)]
    assert "torn" in told.unsure[0].why


def test_a_log_whose_last_line_is_not_whole_may_lack_more(tmp_path: Path) -> None:
    told = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0)}\n{klog(30.0)}")
    ((since_t, until_t),) = times(told)
    assert (round(since_t), until_t) == (30, told.until_t)


def test_a_log_that_was_cut_says_when(tmp_path: Path) -> None:
    earlier = tmp_path / f"{MANAGER}.log.1"
    earlier.write_text(f"{klog(-5.0)}\n")
    os.utime(earlier, (OFFSET_S + 25.0, OFFSET_S + 25.0))
    assert times(log(tmp_path, f"{klog(30.0)}\n")) == [(24.0, 26.0)]


def test_a_log_whose_beginning_is_gone_lacks_that_and_a_node_that_joined_had_none(tmp_path: Path) -> None:
    ((since_t, until_t),) = times(log(tmp_path, f"{klog(30.0)}\n"))
    assert (since_t, round(until_t)) == (0.0, 30)
    joined = Entry(20.0, "machine", {"node": NODE, "step": "joining"})
    assert log(tmp_path, f"{klog(30.0)}\n", joined, component=f"kubelet-{NODE}").unsure == []
    earlier = tmp_path / f"kubelet-{NODE}.log.1"
    earlier.write_text(f"{klog(40.0)}\n")
    os.utime(earlier, (OFFSET_S - 1.0, OFFSET_S - 1.0))
    ((since_t, until_t),) = times(log(tmp_path, f"{klog(50.0)}\n", joined, component=f"kubelet-{NODE}"))
    assert (since_t, round(until_t)) == (0.0, 40)


def test_a_full_memory_may_have_taken_lines_of_a_log(tmp_path: Path) -> None:
    assert [lost.why for lost in log(tmp_path, f"{klog(-5.0)}\n", full=[FULL]).unsure] == [FULL]


def test_what_unicode_takes_for_the_end_of_a_line_ends_none(tmp_path: Path) -> None:
    odd = f"{TEXT} a\x85b\u2028c\rd\x0be"
    told = log(tmp_path, f"{klog(-5.0)}\n{klog(10.0, odd)}\n")
    assert [word.what.partition("] ")[2] for word in told.words] == [f"{TEXT} x", odd]


# Any record


@pytest.mark.parametrize(
    ("known", "lost"),
    [
        ([1.0, 2.0], []),
        ([1.0, None, 2.0], [(1.0, 2.0)]),
        ([None, 2.0], [(0.5, 2.0)]),
        ([1.0, None], [(1.0, 9.0)]),
        ([None], [(0.5, 9.0)]),
        ([1.0, None, None, 4.0], [(1.0, 4.0), (1.0, 4.0)]),
    ],
)
def test_what_is_torn_is_lost_between_the_lines_beside_it(
    known: Sequence[float | None], lost: Sequence[tuple[float, float]]
) -> None:
    assert torn(known, (0.5, 9.0), "torn") == [Lost(*each, "torn") for each in lost]
