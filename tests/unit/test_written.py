"""What is read off the numbers that a witness wrote to its volume."""

from __future__ import annotations

import pytest

from nodeproof.probes.written import acknowledged_in, counted, last_of

TEXT = "1 node-1\n2 node-1\n3 node-2\n"
NODES = ("node-1", "node-2")


def test_each_node_has_its_last_number() -> None:
    assert [last_of(TEXT, node) for node in ("node-1", "node-2", "node-3")] == [2, 3, 0]
    assert last_of("1 node-1\n2 node-1", "node-1") == 1


@pytest.mark.parametrize(("text", "written"), [(TEXT, 3), ("", 0)])
def test_numbers_that_follow_each_other_have_no_flaw(text: str, written: int) -> None:
    assert counted(text, NODES) == {"written": written, "lost": [], "doubled": [], "torn": []}


def test_what_is_torn_lost_and_doubled_is_told() -> None:
    found = counted("1 node-1\n3\n3 node-2\n3 node-1\n", NODES)
    assert found == {"written": 3, "lost": [2], "doubled": [3], "torn": ["3\n"]}


@pytest.mark.parametrize(
    ("text", "torn"),
    [
        ("1 node-1\n2 nod", ["2 nod"]),
        ("1 node-1\n2 node-2", ["2 node-2"]),
        ("1 node-1\n2 nod3 node-2\n", ["2 nod3 node-2\n"]),
        ("1 node-1\n2 nod\n", ["2 nod\n"]),
        ("1 node-1\n\n", ["\n"]),
    ],
)
def test_a_line_of_which_a_part_is_there_is_torn(text: str, torn: list[str]) -> None:
    assert counted(text, NODES)["torn"] == torn


def test_the_last_number_that_was_told_is_that_of_all_boots() -> None:
    assert acknowledged_in("9.1 beat\n9.2 wrote 7\n5.0 started\n5.5 wrote 3\n5.9 failed to write 8\n") == 7
    assert acknowledged_in("9.1 beat\n") == 0
