"""Which logs Allure gets of a scenario, and how much of them."""

from __future__ import annotations

from pathlib import Path

import allure
import pytest

from nodeproof.model.history import Entry, History
from nodeproof.session import recording

LOG = "a line of a log\n" * 10_000
NAMES = (
    "etcd", "kube-apiserver", "kubelet-node-1", "node-node-1",
    "kubelet-node-2", "console-node-2", "node-node-11",
)  # fmt: skip


@pytest.fixture
def attached(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What was attached, by name."""
    found: dict[str, str] = {}

    class Attach:
        def __call__(self, body: str, name: str, _kind: object) -> None:
            found[name] = body

    monkeypatch.setattr(allure, "attach", Attach())
    return found


def test_logs_of_the_control_plane_and_of_the_nodes_concerned_are_attached(
    attached: dict[str, str], tmp_path: Path
) -> None:
    for name in NAMES:
        (tmp_path / f"{name}.log").write_text(f"{name}\n{LOG}")
    recording.attach_logs([tmp_path, tmp_path / "none"], {"node-1"}, short=False)
    assert attached.keys() == {"etcd.log", "kube-apiserver.log", "kubelet-node-1.log", "node-node-1.log"}
    longer = attached["etcd.log"]
    recording.attach_logs([tmp_path], {"node-1"}, short=True)
    assert 0 < len(attached["etcd.log"]) < len(longer) < len(LOG)
    assert longer.endswith("log\n")


def test_a_node_is_concerned_by_a_fault_and_by_what_happened_to_its_machine() -> None:
    told = (
        Entry(1.0, "fault", {"id": "1", "node": "node-1", "step": "injected"}),
        Entry(2.0, "machine", {"node": "joined", "step": "booted"}),
        Entry(3.0, "fault", {"id": "2", "step": "injected"}),
        Entry(4.0, "observed", {"node": "node-3"}),
    )
    assert recording.concerned(History.of(told)) == {"node-1", "joined"}
