"""From rows to one verdict per claim, and to the exit code of a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from nodeproof.model.verdict import Verdict
from nodeproof.report.rundir import Row, RunFacts

CONFORMS, DEVIATES, BROKEN_OFF, UNPROVEN = 0, 1, 2, 3
_CLAIM = "--claim"


def verdict_of(row: Row) -> Verdict:
    """A row's outcome, code and reason as a Verdict; its window stays in the row."""
    return Verdict(row["verdict"], row["code"] or "", row["reason"], last_state=row["last_state"])


def worst_by_claim(rows: Iterable[Row]) -> Mapping[str, Row]:
    """The row that decides each claim, in the order of first appearance.

    Within a scenario a skip outranks conforms: the claim is not wholly proven there. Between scenarios it
    does not: what one could not prove in this profile or lab, another has proven.
    """
    scenarios: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row["claim"], row["scenario"])
        if key not in scenarios or verdict_of(row).rank < verdict_of(scenarios[key]).rank:
            scenarios[key] = row
    worst: dict[str, Row] = {}
    for (claim, _scenario), row in scenarios.items():
        if claim not in worst or _weight(row) < _weight(worst[claim]):
            worst[claim] = row
    return worst


def _weight(row: Row) -> int:
    verdict = verdict_of(row)
    return 4 if verdict.is_skip else verdict.rank


def exit_code(
    rows: Iterable[Row],
    asked_by_name: Collection[str],
    selected: Collection[str],
    broken_off: str = "",
    *,
    is_whole: bool = True,
) -> int:
    """The exit code of a run; `broken_off` says why it did not run to its end, if it did not, and `is_whole`
    whether all of it is there.

    1 when anything deviates; else 3 when a selected claim ended in an unproven that is no skip; else 2 when
    the run broke off; else 3 when a claim that was asked for by name is not proven, a selected one has no
    verdict, or the run is not whole; else 0.
    """
    verdicts = {claim: verdict_of(row) for claim, row in worst_by_claim(rows).items()}
    if any(verdict.outcome == "deviates" for verdict in verdicts.values()):
        return DEVIATES
    if any(_is_open(verdict) for claim, verdict in verdicts.items() if claim in selected):
        return UNPROVEN
    if broken_off:
        return BROKEN_OFF
    if any(claim not in verdicts or verdicts[claim].outcome != "conforms" for claim in asked_by_name):
        return UNPROVEN
    if any(claim not in verdicts for claim in selected):
        return UNPROVEN
    return CONFORMS if is_whole else UNPROVEN


def asked_for(arguments: Sequence[str], facts: RunFacts) -> list[str]:
    """The claims that a run's command line asks for by name; of a shard, those that it has."""
    given = f"{_CLAIM}="
    asked = [each.removeprefix(given) for each in arguments if each.startswith(given)]
    asked += [value for name, value in pairwise(arguments) if name == _CLAIM]
    # What another shard judges is not missing here.
    return [claim for claim in asked if facts.shard is None or claim in facts.selected]


def asked_when_recorded(facts: RunFacts) -> list[str]:
    """The same of a stored run; a merged one has its shards' command lines, one after the other."""
    return asked_for(facts.command.replace("; ", " ").split(), facts)


def _is_open(verdict: Verdict) -> bool:
    """Whether the run does not say what became of a claim, for a reason that another run may not have."""
    return verdict.outcome == "unproven" and not verdict.is_skip
