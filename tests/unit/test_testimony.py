"""Witnesses: what they write, and how it is read."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.cluster import witness
from nodeproof.cluster.witness import FOLDER, HELD, Witness, file_of
from nodeproof.machines.machine import CommandResult, MachineError, PowerAction, Shell
from nodeproof.model.testimony import BEAT, EXITS, FAILED, HOOK_BEGAN, HOOK_ENDED, SIGTERM, STARTED, WROTE
from nodeproof.recording.testimony import BootClock, journal_began, journal_of, read_clock, words_of
from tests.waiting import eventually, pause, throughout

LIMIT_S = 20.0
BOOT = "0f2a9a52-6f0e-4f8e-9c1e-6a6f0d1f2b3c"


class Node:
    """A machine that answers with one text, after a while."""

    name = "node-1"
    data_address = control_plane_address = state_folder = ""

    def __init__(self, output: str, status: int = 0, takes_s: float = 0.0) -> None:
        self.asked: list[str] = []
        self._output, self._status, self._takes_s = output, status, takes_s

    def run(self, argv: Sequence[str], *, deadline_s: float, stdin: str = "") -> CommandResult:  # noqa: ARG002
        self.asked.append(" ".join(argv))
        pause(self._takes_s)
        return CommandResult(self._status, self._output, "no such file")

    def is_powered(self) -> bool:
        return True

    def power(self, action: PowerAction) -> None:
        raise NotImplementedError(action)

    def beside(self, name: str) -> Shell:
        raise NotImplementedError(name)


def test_a_clock_is_told_with_its_error() -> None:
    before = time.monotonic()
    clock = read_clock(Node(f"100.50 {BOOT}\n", takes_s=0.02))
    after = time.monotonic()
    assert clock.boot_id == BOOT
    assert before <= clock.offset_s + 100.5 <= after
    assert 0.01 < clock.error_s < 0.01 + (after - before)


def test_words_are_put_on_the_clock_of_the_harness() -> None:
    node = Node("1.00 started\n1.25 pre-stop began\n")
    words = list(words_of(node, "pod-1", BootClock(BOOT, 50.0, 0.1)))
    assert [(word.t, word.what) for word in words] == [(51.0, STARTED), (51.25, HOOK_BEGAN)]
    assert file_of("pod-1", BOOT) in node.asked[0]


def test_a_journal_is_put_on_the_clock_of_the_harness() -> None:
    lines = [{"MESSAGE": "a", "__MONOTONIC_TIMESTAMP": "1500000"}, {"__MONOTONIC_TIMESTAMP": "2000000"}]
    node = Node("\n".join(json.dumps(line) for line in lines))
    words = list(journal_of(node, "kubelet.service", BootClock(BOOT, 50.0, 0.1)))
    assert [(word.t, word.what) for word in words] == [(51.5, "a"), (52.0, "")]
    assert BOOT.replace("-", "") in node.asked[0]


def logged(message: object) -> Node:
    """A journal of one line, as journalctl writes it: what is no ASCII as it is."""
    told = {"MESSAGE": message, "__MONOTONIC_TIMESTAMP": "1500000"}
    return Node(json.dumps(told, ensure_ascii=False) + "\n")


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ("x" * 5000, "x" * 5000),
        (list(b"retry \x1b[0m"), "retry \x1b[0m"),
        (list(b"\xff retry"), "\ufffd retry"),
        (["one", list(b"two\x07")], "one\ntwo\x07"),
        ("retry \u2028 \x85 again", "retry \u2028 \x85 again"),
    ],
    ids=["long", "control characters", "no UTF-8", "several", "line ends of Unicode"],
)
def test_a_journal_is_read_whole_whatever_is_in_its_lines(message: object, what: str) -> None:
    node = logged(message)
    words = journal_of(node, "kubelet.service", BootClock(BOOT, 50.0, 0.1))
    assert [word.what for word in words] == [what]
    # Without it a field of more than 4096 bytes is null.
    assert " --all " in node.asked[0]


@pytest.mark.parametrize("message", [None, 7, {"a": 1}, [300], [None]])
def test_a_line_of_a_journal_that_is_no_text_is_refused(message: object) -> None:
    with pytest.raises(MachineError, match="a line without text"):
        list(journal_of(logged(message), "kubelet.service", BootClock(BOOT, 50.0, 0.1)))


def test_when_a_journal_begins() -> None:
    assert journal_began(logged("Linux version"), BootClock(BOOT, 50.0, 0.1)) == 51.5
    assert journal_began(Node(""), BootClock(BOOT, 50.0, 0.1)) is None
    with pytest.raises(MachineError, match="did not return JSON"):
        journal_began(Node("-- No entries --"), BootClock(BOOT, 50.0, 0.1))


def test_what_cannot_be_read_was_not_told() -> None:
    with pytest.raises(MachineError, match="no such file"):
        list(words_of(Node("", status=1), "pod-1", BootClock(BOOT, 0.0, 0.0)))


Running = Callable[[Witness, str], proc.Process]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Runs a witness's container, or its hook, as processes of this machine: bash has what its shell has."""
    begun: list[proc.Process] = []

    def run(kind: Witness, part: str) -> proc.Process:
        made = witness._container(kind)
        command = made["command"] if part == "main" else made["lifecycle"]["preStop"]["exec"]["command"]
        script = command[2].replace(FOLDER, str(tmp_path)).replace("/tmp/never", str(tmp_path / "never"))
        script, env = script.replace(HELD, str(tmp_path / "held")), {"NAME": "pod-1", "NODE": "node-2"}
        argv, env = ["bash", "-c", script], {**os.environ, **env}
        begun.append(proc.start(argv, log=tmp_path / "log", env=env, own_session=True))
        return begun[-1]

    yield run
    for process in begun:
        # What writes beside a witness ends with its container, and here with its session.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(LIMIT_S)


def told_of(folder: Path, what: str) -> list[str]:
    """What was told of numbers: two processes tell, which wait for nobody."""
    lines = [
        line.split(" ", 1)[1] for path in folder.glob("pod-1.*") for line in path.read_text().splitlines()
    ]
    return [line for line in lines if line.startswith(what)]


def written(folder: Path) -> list[str]:
    """What was written so far, without the times, which must not go back."""
    lines = [line.split(" ", 1) for path in folder.glob("pod-1.*") for line in path.read_text().splitlines()]
    assert [float(up) for up, _what in lines] == sorted(float(up) for up, _what in lines)
    return [what for _up, what in lines]


def test_a_witness_that_hears_sigterm_says_so_and_exits(running: Running, tmp_path: Path) -> None:
    process = running(Witness(), "main")
    assert eventually(lambda: written(tmp_path).count(BEAT) > 3, LIMIT_S)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0
    told = written(tmp_path)
    assert told[0] == STARTED
    assert told[-2:] == [SIGTERM, EXITS]


def test_a_deaf_witness_hears_sigterm_and_does_not_end(running: Running, tmp_path: Path) -> None:
    process = running(Witness(deaf=True), "main")
    assert eventually(lambda: BEAT in written(tmp_path), LIMIT_S)
    os.kill(process.pid, signal.SIGTERM)
    assert eventually(lambda: SIGTERM in written(tmp_path), LIMIT_S)
    assert throughout(lambda: process.poll() is None, 1.0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)
    assert EXITS not in written(tmp_path)


def test_a_witness_with_a_claim_writes_numbers_and_tells_of_each(running: Running, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "written").write_text("1 node-1\n2 node-1\n")
    process = running(Witness(claim="data"), "main")
    assert eventually(lambda: f"{WROTE} 4" in told_of(tmp_path, WROTE), LIMIT_S)
    (tmp_path / "held" / "written").rename(tmp_path / "gone")
    (tmp_path / "held").rmdir()
    assert eventually(lambda: told_of(tmp_path, FAILED), LIMIT_S)
    os.kill(process.pid, signal.SIGTERM)
    process.wait(LIMIT_S)
    assert (tmp_path / "gone").read_text().startswith("1 node-1\n2 node-1\n3 node-2\n4 node-2\n")


def test_a_hook_says_when_it_begins_and_ends(running: Running, tmp_path: Path) -> None:
    assert running(Witness(pre_stop_s=1), "hook").wait(LIMIT_S) == 0
    assert written(tmp_path) == [HOOK_BEGAN, HOOK_ENDED]


def test_what_a_witness_holds_is_one_block_that_nobody_takes(tmp_path: Path) -> None:
    container = witness._container(Witness(holds_mib=30))
    (held,) = re.findall(r"exec (dd [^)]*)", container["command"][2])
    pipe, errors = tmp_path / "held", tmp_path / "errors"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    process = proc.start(["bash", "-c", f"exec {held.replace('/tmp/held', str(pipe))}"], log=errors)
    status = Path(f"/proc/{process.pid}/status")
    assert eventually(lambda: resident_kib(status) > 30 * 1024, LIMIT_S)
    assert throughout(lambda: process.poll() is None, 0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(LIMIT_S)
    os.close(end)


def resident_kib(status: Path) -> int:
    lines = (line.split() for line in status.read_text().splitlines())
    return next((int(line[1]) for line in lines if line[0] == "VmRSS:"), 0)
