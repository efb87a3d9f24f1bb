"""The ledger: entries on disk are readable whatever happened to its end."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from nodeproof.safety import ledger as ledgers
from nodeproof.safety.ledger import Ledger, labs_with_ledgers

FAULT = {"fault": "partition", "id": "00000001", "node": "node-1", "direction": "both"}
OTHER = {**FAULT, "id": "00000002"}


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Return a ledger with one active fault."""
    ledger = Ledger("p-000001", tmp_path / "ledger")
    for step in ("planned", "armed", "injecting", "injected"):
        ledger.write(step, FAULT)
    return ledger


def open_faults(ledger: Ledger) -> list[tuple[str, str]]:
    return [(str(entry.fault["id"]), entry.step) for entry in ledger.unfinished()]


def test_each_step_is_one_line_on_disk(ledger: Ledger) -> None:
    lines = [json.loads(line) for line in ledger.path.read_text().splitlines()]
    assert [line["step"] for line in lines] == ["planned", "armed", "injecting", "injected"]
    assert all(line["fault"] == FAULT for line in lines)
    assert ledger.path.stat().st_mode & 0o777 == 0o600


def test_fault_is_open_until_it_is_closed(ledger: Ledger) -> None:
    assert open_faults(ledger) == [("00000001", "injected")]
    ledger.write("closed", FAULT)
    assert open_faults(ledger) == []


def test_fault_with_a_last_line_torn_anywhere_stays_open(ledger: Ledger) -> None:
    whole = ledger.path.read_bytes()
    last = whole.rindex(b"\n", 0, -1) + 1
    for end in range(last, len(whole)):
        ledger.path.write_bytes(whole[:end])
        ((fault, step),) = open_faults(ledger)
        assert (fault, step) == ("00000001", "injected" if end == len(whole) - 1 else "injecting")


def test_entries_after_a_torn_line_are_read(ledger: Ledger) -> None:
    ledger.path.write_bytes(ledger.path.read_bytes()[:-9])
    ledger.write("planned", OTHER)
    ledger.write("closed", FAULT)
    assert open_faults(ledger) == [("00000002", "planned")]


@pytest.mark.parametrize(
    "line", ["1", "null", "[]", "{}", '{"fault": 1, "step": "planned"}', "\x00\x00", "}"]
)
def test_invalid_lines_are_ignored(ledger: Ledger, line: str) -> None:
    with ledger.path.open("a") as out:
        out.write(f"{line}\n")
    assert open_faults(ledger) == [("00000001", "injected")]


def test_concurrent_writers_lose_no_line(ledger: Ledger) -> None:
    def write() -> None:
        for _time in range(20):
            ledger.write("planned", OTHER)

    threads = [threading.Thread(target=write) for _worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ledger.path.read_text().splitlines()) == 4 + 80


@pytest.mark.parametrize("elsewhere", ["another machine", "another boot", "another user"])
def test_ledgers_of_another_host_in_the_same_home_are_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    boot = tmp_path / "boot_id"
    boot.write_text("11111111-1111-1111-1111-111111111111\n")
    with monkeypatch.context() as patch:
        if elsewhere == "another machine":
            patch.setattr(socket, "gethostname", lambda: "some/where else")
        elif elsewhere == "another boot":
            patch.setattr(ledgers, "_BOOT_ID", boot)
        else:
            patch.setattr(os, "getuid", lambda: 4711)
        theirs = Ledger("p-000001", tmp_path)
        theirs.write("planned", FAULT)
        assert labs_with_ledgers(tmp_path) == ["p-000001"]
    Ledger("p-000002", tmp_path).write("planned", FAULT)
    assert labs_with_ledgers(tmp_path) == ["p-000002"]
    Ledger("p-000001", tmp_path).forget()
    assert theirs.path.exists()


def test_zone_lease_finds_its_own_faults_and_lab_lease_all(tmp_path: Path) -> None:
    whole = Ledger("p-000001", tmp_path)
    first, second = (Ledger("p-000001", tmp_path, lease=zone) for zone in ("zone-a", "zone-b"))
    first.write("planned", FAULT)
    second.write("planned", OTHER)
    assert [open_faults(ledger) for ledger in (first, second)] == [
        [("00000001", "planned")],
        [("00000002", "planned")],
    ]
    assert len(whole.unfinished()) == 2
    whole.write("closed", FAULT)
    assert open_faults(first) == []
    assert open_faults(whole) == [("00000002", "planned")]
