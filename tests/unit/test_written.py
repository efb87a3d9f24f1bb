"""What is read off the numbers that a witness wrote to its volume."""

from __future__ import annotations

from nodeproof.probes.written import acknowledged_in, flaws_of, last_of

TEXT = "1 node-1\n2 node-1\n3 node-2\n"


def test_each_node_has_its_last_number() -> None:
    assert [last_of(TEXT, node) for node in ("node-1", "node-2", "node-3")] == [2, 3, 0]


def test_numbers_that_follow_each_other_have_no_flaw() -> None:
    assert flaws_of(TEXT) == flaws_of("") == []


def test_what_is_torn_lost_and_doubled_is_told() -> None:
    assert flaws_of("1 node-1\n3\n3 node-2\n3 node-1\n") == ["torn: '3'", "lost: 2", "doubled: 3"]


def test_the_last_number_that_was_told_is_that_of_all_boots() -> None:
    assert acknowledged_in("9.1 beat\n9.2 wrote 7\n5.0 started\n5.5 wrote 3\n5.9 failed to write 8\n") == 7
    assert acknowledged_in("9.1 beat\n") == 0
