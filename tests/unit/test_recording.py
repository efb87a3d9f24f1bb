"""A recording: its threads, the messages of probe pods, and recorded parts of foreign objects."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from nodeproof import proc
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE, RESOURCES, WATCHED, recorded
from nodeproof.cluster.workloads import HELD, WITNESS_FOLDER, Witness, file_of
from nodeproof.labs.base import stalls
from nodeproof.labs.base.processes import EventLog
from nodeproof.machines.machine import MachineError
from nodeproof.model.clocks import Reading
from nodeproof.model.cluster import CLUSTER_WIDE
from nodeproof.model.history import Entry, History
from nodeproof.model.pattern import Json
from nodeproof.model.pod_log import BEAT, EXITS, FAILED, HOOK_BEGAN, HOOK_ENDED, SIGTERM, STARTED, WROTE
from nodeproof.model.problem import Problem
from nodeproof.model.slack import LAB
from nodeproof.recording import recorder
from nodeproof.recording.node_messages import (
    BootClock,
    Message,
    journal_began,
    journal_of,
    messages_of,
    read_clock,
)
from nodeproof.recording.recorder import Recording, RecordingContext, follow, state_of
from tests.fakes import FakeMachine, in_turn
from tests.waiting import eventually, pause, throughout

# Threads of a recording: failures and ends are recorded.


TIMEOUT_S = 30.0
FEW = 3


def no_clock(name: str) -> Reading:
    raise MachineError(f"{name}: there is none")


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    """Return a recording that has not begun: nothing is watched."""
    monkeypatch.setattr(recorder, "_LOOK_PERIOD_S", 0.01)
    context = RecordingContext(("node-1",), "node-2", no_clock, tmp_path / "events.jsonl")
    recording = Recording(cast("Api", None), tmp_path / "history.jsonl", context)
    yield recording
    recording._stopping.set()
    for thread in recording._threads:
        thread.join(TIMEOUT_S)
    recording._out.close()


def entries(recording: Recording, kind: str) -> list[dict[str, Any]]:
    return [dict(entry.data) for entry in recording.history().of_kind(kind)]


@pytest.mark.parametrize(
    "error", [ApiError(503, "busy"), MachineError("node-1: no end within 10 s"), Problem("a", "b", "c")]
)
def test_failed_observation_is_recorded_and_repeated(recording: Recording, error: Exception) -> None:
    recording.observe("status", "pod-1", in_turn("Running", error, "Unknown"))
    assert eventually(lambda: len(entries(recording, "observed")) >= FEW, TIMEOUT_S)
    values = [(data["value"], data.get("error")) for data in entries(recording, "observed")[:FEW]]
    assert values == [("Running", None), (None, str(error)), ("Unknown", None)]
    assert entries(recording, "broken") == []


def test_ended_observation_thread_records_its_subject(recording: Recording) -> None:
    recording.observe("status", "pod-1", in_turn("Running", KeyError("rows")))
    assert eventually(lambda: entries(recording, "broken"), TIMEOUT_S)
    (broken,) = entries(recording, "broken")
    assert broken == {"error": "KeyError: 'rows'", "what": "status", "subject": "pod-1"}


def test_repeated_action_is_repeated_after_a_failure(recording: Recording) -> None:
    deed = in_turn(MachineError("no answer"), "done")
    outcomes: list[str] = []
    recording.repeat(0.01, lambda: outcomes.append(deed()))
    assert eventually(lambda: len(outcomes) >= FEW, TIMEOUT_S)
    assert entries(recording, "broken") == []


def test_watch_with_an_ended_thread_has_a_gap_from_then_on(recording: Recording) -> None:
    def follow() -> None:
        raise ValueError("no JSON")

    recording._start_thread(follow, resource="nodes")
    assert eventually(lambda: entries(recording, "gap"), TIMEOUT_S)
    assert entries(recording, "broken") == [{"error": "ValueError: no JSON", "resource": "nodes"}]
    history = recording.history()
    gap = history.gap("nodes", history.ended_t + 5.0, history.ended_t + 6.0)
    assert gap is not None
    assert gap.reason == "ValueError: no JSON"
    assert history.gap("pods", 0.0, history.ended_t + 6.0) is None


def test_failed_lab_measurement_is_recorded_and_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "AGAIN_S", 0.0)
    events, ended, begun = EventLog(tmp_path / "events.jsonl"), threading.Event(), list[int]()

    def tell() -> None:
        begun.append(len(begun))
        if len(begun) == 1:
            raise ValueError("no number")
        ended.set()

    stalls._keep_measuring(tell, events, ended)
    (event,) = [json.loads(line) for line in events.path.read_text().splitlines()]
    assert len(begun) == 2
    assert (event["kind"], event["error"], event["by"]) == ("broken", "ValueError: no number", LAB)


# Probe pods: their messages, and how they are read.


BOOT = "0f2a9a52-6f0e-4f8e-9c1e-6a6f0d1f2b3c"


def node_with(output: str, status: int = 0, takes_s: float = 0.0) -> FakeMachine:
    """Return a machine that always returns one text, after a delay."""

    def answer(_argv: Sequence[str]) -> str:
        pause(takes_s)
        return output

    return FakeMachine(answer, status)


def test_clock_reading_has_an_error() -> None:
    before = time.monotonic()
    clock = read_clock(node_with(f"100.50 {BOOT}\n", takes_s=0.02))
    after = time.monotonic()
    assert clock.boot_id == BOOT
    assert before <= clock.offset_s + 100.5 <= after
    assert 0.01 < clock.error_s < 0.01 + (after - before)


def test_messages_are_converted_to_the_clock_of_the_harness() -> None:
    node = node_with("1.00 started\n1.25 pre-stop began\n")
    messages = messages_of(node, "pod-1", BootClock(BOOT, 50.0, 0.1))
    assert messages == [Message(51.0, STARTED), Message(51.25, HOOK_BEGAN)]
    assert file_of("pod-1", BOOT) in node.commands[0]


def test_journal_is_converted_to_the_clock_of_the_harness() -> None:
    lines = [{"MESSAGE": "a", "__MONOTONIC_TIMESTAMP": "1500000"}, {"__MONOTONIC_TIMESTAMP": "2000000"}]
    node = node_with("\n".join(json.dumps(line) for line in lines))
    messages = list(journal_of(node, "kubelet.service", BootClock(BOOT, 50.0, 0.1)))
    assert [(message.t, message.what) for message in messages] == [(51.5, "a"), (52.0, "")]
    assert BOOT.replace("-", "") in node.commands[0]


def logged(message: object) -> FakeMachine:
    """Return a journal with one line, as journalctl writes it, including non-ASCII text."""
    line = {"MESSAGE": message, "__MONOTONIC_TIMESTAMP": "1500000"}
    return node_with(json.dumps(line, ensure_ascii=False) + "\n")


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
def test_journal_is_read_completely_with_any_content(message: object, what: str) -> None:
    node = logged(message)
    messages = journal_of(node, "kubelet.service", BootClock(BOOT, 50.0, 0.1))
    assert [message.what for message in messages] == [what]
    # Otherwise a field of more than 4096 bytes is null.
    assert " --all " in node.commands[0]


@pytest.mark.parametrize("message", [None, 7, {"a": 1}, [300], [None]])
def test_journal_line_without_text_is_refused(message: object) -> None:
    with pytest.raises(MachineError, match="a line without text"):
        list(journal_of(logged(message), "kubelet.service", BootClock(BOOT, 50.0, 0.1)))


def test_beginning_of_a_journal_is_read() -> None:
    assert journal_began(logged("Linux version"), BootClock(BOOT, 50.0, 0.1)) == 51.5
    assert journal_began(node_with(""), BootClock(BOOT, 50.0, 0.1)) is None
    with pytest.raises(MachineError, match="did not return JSON"):
        journal_began(node_with("-- No entries --"), BootClock(BOOT, 50.0, 0.1))


def test_unreadable_pod_log_is_an_error() -> None:
    with pytest.raises(MachineError, match="no such file"):
        messages_of(node_with("", status=1), "pod-1", BootClock(BOOT, 0.0, 0.0))


Running = Callable[[Witness, str], proc.Process]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """Run a probe pod's container, or its hook, as processes of this machine."""
    begun: list[proc.Process] = []

    def run(kind: Witness, part: str) -> proc.Process:
        container = workloads._witness_container(kind)
        command = (
            container["command"] if part == "main" else container["lifecycle"]["preStop"]["exec"]["command"]
        )
        script = (
            command[2].replace(WITNESS_FOLDER, str(tmp_path)).replace("/tmp/never", str(tmp_path / "never"))
        )
        script, env = script.replace(HELD, str(tmp_path / "held")), {"NAME": "pod-1", "NODE": "node-2"}
        argv, env = ["bash", "-c", script], {**os.environ, **env}
        begun.append(proc.start(argv, log=tmp_path / "log", env=env, own_session=True))
        return begun[-1]

    yield run
    for process in begun:
        # A probe pod's second writer ends with its container, and here with its session.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)


def written(folder: Path, about: str = "") -> list[str]:
    """Return the messages so far without their times, which must not decrease.

    Messages `about` numbers are written by an independent process.
    """
    lines = [line.split(" ", 1) for path in folder.glob("pod-1.*") for line in path.read_text().splitlines()]
    assert about or [float(up) for up, _what in lines] == sorted(float(up) for up, _what in lines)
    return [what for _up, what in lines if what.startswith(about)]


def test_probe_pod_reports_sigterm_and_exits(running: Running, tmp_path: Path) -> None:
    process = running(Witness(), "main")
    assert eventually(lambda: written(tmp_path).count(BEAT) > 3, TIMEOUT_S)
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait(TIMEOUT_S) == 0
    messages = written(tmp_path)
    assert messages[0] == STARTED
    assert messages[-2:] == [SIGTERM, EXITS]


def test_probe_pod_that_ignores_sigterm_reports_it_and_stays(running: Running, tmp_path: Path) -> None:
    process = running(Witness(ignores_sigterm=True), "main")
    assert eventually(lambda: BEAT in written(tmp_path), TIMEOUT_S)
    os.kill(process.pid, signal.SIGTERM)
    assert eventually(lambda: SIGTERM in written(tmp_path), TIMEOUT_S)
    assert throughout(lambda: process.poll() is None, 1.0)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT_S)
    assert EXITS not in written(tmp_path)


def test_probe_pod_with_a_claim_writes_numbers_and_reports_each(running: Running, tmp_path: Path) -> None:
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "written").write_text("1 node-1\n2 node-1\n")
    process = running(Witness(pvc="data"), "main")
    assert eventually(lambda: f"{WROTE} 4" in written(tmp_path, WROTE), TIMEOUT_S)
    (tmp_path / "held" / "written").rename(tmp_path / "gone")
    (tmp_path / "held").rmdir()
    assert eventually(lambda: written(tmp_path, FAILED), TIMEOUT_S)
    os.kill(process.pid, signal.SIGTERM)
    process.wait(TIMEOUT_S)
    assert (tmp_path / "gone").read_text().startswith("1 node-1\n2 node-1\n3 node-2\n4 node-2\n")


def test_hook_reports_its_begin_and_end(running: Running, tmp_path: Path) -> None:
    assert running(Witness(pre_stop_s=1), "hook").wait(TIMEOUT_S) == 0
    assert written(tmp_path) == [HOOK_BEGAN, HOOK_ENDED]


def test_memory_of_a_probe_pod_is_one_block(tmp_path: Path) -> None:
    container = workloads._witness_container(Witness(memory_mib=30))
    (held,) = re.findall(r"exec (dd [^)]*)", container["command"][2])
    pipe, errors = tmp_path / "held", tmp_path / "errors"
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDWR)
    process = proc.start(["bash", "-c", f"exec {held.replace('/tmp/held', str(pipe))}"], log=errors)
    status = Path(f"/proc/{process.pid}/status")
    assert eventually(lambda: resident_kib(status) > 30 * 1024, TIMEOUT_S)
    assert throughout(lambda: process.poll() is None, 0.5)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(TIMEOUT_S)
    os.close(end)


def resident_kib(status: Path) -> int:
    lines = (line.split() for line in status.read_text().splitlines())
    return next((int(line[1]) for line in lines if line[0] == "VmRSS:"), 0)


# Recorded parts of foreign objects.


SECRET = "hunter2"  # noqa: S105  looked for, never used


def pod(namespace: str) -> dict[str, Json]:
    container = {"name": "c", "env": [{"name": "PASSWORD", "value": SECRET}], "args": [f"--token={SECRET}"]}
    applied = {"kubectl.kubernetes.io/last-applied-configuration": json.dumps({"env": SECRET})}
    return {
        "metadata": {
            **{"name": "p", "namespace": namespace, "uid": "u", "resourceVersion": "7"},
            **{"annotations": applied, "deletionTimestamp": "2026-01-01T00:00:00Z", "managedFields": []},
        },
        "spec": {"nodeName": "node-1", "containers": [container], "initContainers": [container]},
        "status": {
            "phase": "Running",
            "conditions": [],
            "containerStatuses": [{"state": {"message": SECRET}}],
        },
    }


def event(kind: str, namespace: str) -> dict[str, Json]:
    about = {"kind": kind, "name": "p", "namespace": namespace}
    return {"metadata": {"namespace": namespace}, "involvedObject": about, "reason": "Why", "message": SECRET}


@pytest.mark.parametrize(
    ("resource", "theirs"),
    [("pods", pod("shop")), ("events", event("Pod", "shop")), ("pods", pod("kube-system"))],
)
def test_foreign_objects_are_recorded_without_secrets(resource: str, theirs: dict[str, Json]) -> None:
    assert SECRET not in json.dumps(recorded(resource, theirs))


def test_recorded_foreign_pod_has_its_node_and_lifecycle() -> None:
    reduced = recorded("pods", pod("shop"))
    assert reduced["spec"] == {"nodeName": "node-1"}
    assert reduced["status"] == {"phase": "Running", "conditions": []}
    assert reduced["metadata"]["resourceVersion"] == "7"
    assert reduced["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize(
    ("resource", "ours"),
    [("pods", pod(NAMESPACE)), ("events", event("Pod", NAMESPACE)), ("events", event("Node", "default"))],
)
def test_own_objects_and_node_objects_are_recorded_in_full(resource: str, ours: dict[str, Json]) -> None:
    assert recorded(resource, ours) == ours


def nothing() -> None:
    """Do nothing."""


class Server:
    """An API server with a list, and an event or an error for each watch; the last one is repeated."""

    def __init__(self, items: list[Json], *watches: Json) -> None:
        self.queries: list[object] = []
        self.watched_from: list[str] = []
        self._items, self._watches = items, watches

    def get(self, _path: str, query: object = None) -> Mapping[str, Json]:
        self.queries.append(query)
        return {"metadata": {"resourceVersion": "7"}, "items": self._items}

    @contextmanager
    def watch(self, _path: str, rv: str, _silence_limit_s: float) -> Iterator[list[bytes]]:
        event = self._watches[min(len(self.watched_from), len(self._watches) - 1)]
        self.watched_from.append(rv)
        if isinstance(event, ApiError):
            raise event
        yield [json.dumps(event).encode()]


def followed(server: Server, resource: str) -> list[Entry]:
    """Return what is recorded of a resource up to the first event."""
    stopping, entries = threading.Event(), list[Entry]()

    def receive(kind: str, t: float, data: Mapping[str, Json]) -> None:
        entries.append(Entry(t, kind, data))
        if kind == "watch":
            stopping.set()

    follow(cast("Api", server), resource, WATCHED[resource], receive, nothing, stopping, 1.0)
    return entries


def test_lists_and_watches_are_reduced_alike() -> None:
    entries = followed(Server([pod("shop")], {"type": "MODIFIED", "object": pod("shop")}), "pods")
    assert [entry.kind for entry in entries] == ["listed", "watch"]
    assert not any(SECRET in entry.to_json() for entry in entries)


def test_events_before_a_recording_are_neither_recorded_nor_missed() -> None:
    old, since, new = (
        {
            **event("Node", "default"),
            "metadata": {"uid": uid, "resourceVersion": rv, "namespace": "default", "name": uid},
        }
        for uid, rv in (("old", "3"), ("since", "8"), ("new", "9"))
    )
    server = Server([old], {"type": "ADDED", "object": since})
    history = History.of(followed(server, "events"))
    assert (server.queries, server.watched_from) == ([{"limit": "1"}], ["7"])
    assert history.folded("events", 8) == {"since": "8"}
    listing = {"metadata": {"resourceVersion": "9"}, "items": [old, since, new]}
    assert state_of(listing, history, "events") == {"rv": "9", "objects": {"since": "8", "new": "9"}}
    assert state_of(listing, history, "pods")["objects"].keys() == {"old", "since", "new"}


@pytest.mark.parametrize("name", RESOURCES)
def test_moments_and_resources_agree_on_namespaces(name: str) -> None:
    resource = RESOURCES[name]
    assert (name in CLUSTER_WIDE) == ("/namespaces/" not in resource.home)


@pytest.mark.parametrize("name", ["daemonsets", "deployments", "replicasets", "services", "statefulsets"])
def test_specifications_of_foreign_objects_are_not_recorded(name: str) -> None:
    secret = {"spec": {"template": {"spec": {"containers": [{"env": [{"value": "secret"}]}]}}}}
    meta = {"name": "theirs", "namespace": "theirs", "annotations": {"last-applied": "secret"}}
    stored = recorded(name, {"metadata": meta, **secret, "status": {"replicas": 1}})
    assert "secret" not in str(stored)
    assert stored["status"] == {"replicas": 1}


def test_watch_that_is_not_back_at_the_end_is_a_gap() -> None:
    """It expires, and then the API server refuses every watch."""
    server = Server([], ApiError(410, "too old resource version"), ApiError(503, "shutting down"))
    stopping, kinds = threading.Event(), list[str]()

    def receive(kind: str, _t: float, _data: Mapping[str, object]) -> None:
        kinds.append(kind)

    broke = partial(kinds.append, "broke")
    arguments = (server, "nodes", WATCHED["nodes"], receive, nothing, stopping, 1.0, broke)
    thread = threading.Thread(target=follow, args=arguments)
    thread.start()
    assert eventually(lambda: len(server.watched_from) > 1, TIMEOUT_S)
    stopping.set()
    thread.join(TIMEOUT_S)
    assert kinds == ["listed", "broke", "listed", "gap"]
