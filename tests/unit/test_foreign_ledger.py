"""The ledger of somebody's own cluster, which others can write: only what a run can have done is undone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn, cast

import pytest

from nodeproof.existing.connection import ConnectedCluster
from nodeproof.labs.client.safety import Safety
from nodeproof.labs.kinds.existing.consent import MarkedNodes
from nodeproof.labs.kinds.kind import Access, Consent
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.safety.injector import NEVER
from nodeproof.safety.ledger import Ledger
from tests.fakes import fake_lab
from tests.unit.test_marks import INVENTORY, NAME

ID, MARK_ID = "0123abcd", "0123456789abcdef0123456789abcdef"


class Untouched:
    """An API, fleet or switch that nobody may use."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        def use(*_arguments: object, **_options: object) -> NoReturn:
            raise AssertionError(f"{name} is used")

        return use


def safety(folder: Path) -> Safety:
    """Return the safety of a cluster whose inventory has one node."""
    nodes = MarkedNodes(ConnectedCluster(INVENTORY, cast("Any", None), cast("Any", None)), "x", folder)
    parts: dict[str, object] = {
        "dir": folder,
        "api": Untouched(),
        "fleet": Untouched(),
        "switch": Untouched(),
        "armed_faults": lambda: (),
        "ledger": Ledger("x", folder),
        "consent": Consent(nodes.record, nodes.permit, nodes.check_open, NEVER),
        "features": frozenset({"systemd"}),
        "heal_command": "nodeproof heal",
    }
    return Safety(cast("Access", fake_lab(parts)))


FAULTS: Mapping[str, Mapping[str, Json]] = {
    "another fault": {"fault": "clock", "id": ID, "node": NAME, "ahead_s": 600},
    "another unit": {"fault": "unit-down", "id": ID, "node": NAME, "unit": "sshd.service"},
    "rules in an id": {"fault": "partition", "id": "x; flush ruleset", "node": NAME},
    "node that is not listed": {"fault": "partition", "id": ID, "node": "gone-1"},
}
OWN_PODS = "/api/v1/namespaces/nodeproof-pods/pods"
CHANGES: Mapping[str, Mapping[str, Json]] = {
    "node that joined": {"fault": "joined", "id": MARK_ID, "node": NAME, "as": NAME},
    "node that was cordoned": {"fault": "cordoned", "id": MARK_ID, "node": NAME, "uid": "u"},
    "object of others": {"fault": "object", "id": MARK_ID, "path": "/api/v1/namespaces/shop/pods/a"},
    "way out": {"fault": "object", "id": MARK_ID, "path": f"{OWN_PODS}/../../shop"},
    "object without a mark": {"fault": "object", "id": None, "path": f"{OWN_PODS}/a"},
}


@pytest.mark.parametrize("entry", [*FAULTS.values(), *CHANGES.values()], ids=[*FAULTS, *CHANGES])
def test_entry_that_no_run_wrote_stays_and_touches_nothing(tmp_path: Path, entry: Mapping[str, Json]) -> None:
    own = safety(tmp_path)
    own.ledger.write("injected", entry)
    (left,) = own.heal_unfinished()
    assert left.endswith("; undo it by hand")
    assert len(own.ledger.unfinished()) == 1


@pytest.mark.parametrize("entry", CHANGES.values(), ids=list(CHANGES))
def test_change_that_no_scenario_made_is_not_undone(tmp_path: Path, entry: Mapping[str, Json]) -> None:
    own = safety(tmp_path)
    own.ledger.write("planned", entry)
    with pytest.raises(Problem, match="not undone"):
        own.undo_changes()


@pytest.mark.parametrize(
    "path", ["/api/v1/namespaces/nodeproof-pods", "/apis/apps/v1/namespaces/nodeproof-pods/deployments/a.b-1"]
)
def test_object_of_a_scenario_is_looked_up(tmp_path: Path, path: str) -> None:
    own = safety(tmp_path)
    own.ledger.write("planned", {"fault": "object", "id": MARK_ID, "path": path})
    (left,) = own.heal_unfinished()
    assert "get is used" in left


def test_listed_fault_is_healed_on_its_node(tmp_path: Path) -> None:
    own = safety(tmp_path)
    own.ledger.write("injected", {"fault": "partition", "id": ID, "node": NAME, "answer": "reject"})
    (left,) = own.heal_unfinished()
    assert "has is used" in left
