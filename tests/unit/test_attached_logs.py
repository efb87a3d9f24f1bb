"""Logs attached to Allure's results."""

from __future__ import annotations

from pathlib import Path

from nodeproof.model.history import Entry, History
from nodeproof.session import scenario_report

LOG = "a line of a log\n" * 10_000
NAMES = (
    "etcd", "kube-apiserver", "kubelet-node-1", "node-node-1",
    "kubelet-node-2", "console-node-2", "node-node-11",
)  # fmt: skip


def test_logs_of_control_plane_and_affected_nodes_are_attached(tmp_path: Path) -> None:
    def tails(*folders: Path, short: bool) -> dict[str, str]:
        return {tail.name: tail.text for tail in scenario_report.log_tails(folders, {"node-1"}, short=short)}

    for name in NAMES:
        (tmp_path / f"{name}.log").write_text(f"{name}\n{LOG}")
    long, short = tails(tmp_path, tmp_path / "none", short=False), tails(tmp_path, short=True)
    assert long.keys() == {"etcd.log", "kube-apiserver.log", "kubelet-node-1.log", "node-node-1.log"}
    assert 0 < len(short["etcd.log"]) < len(long["etcd.log"]) < len(LOG)
    assert long["etcd.log"].endswith("log\n")


def test_node_is_affected_by_a_fault_or_a_machine_event() -> None:
    entries = (
        Entry(1.0, "fault", {"id": "1", "node": "node-1", "step": "injected"}),
        Entry(2.0, "machine", {"node": "joined", "step": "booted"}),
        Entry(3.0, "fault", {"id": "2", "step": "injected"}),
        Entry(4.0, "observed", {"node": "node-3"}),
    )
    assert scenario_report.concerned(History.of(entries)) == {"node-1", "joined"}
