"""csi-sanity, upstream's test of CSI drivers, against the driver of `infra/csi` over its table.

It stands here because it is built first, which takes minutes and both processors, and nothing runs beside it.
"""

from __future__ import annotations

import json
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import csi
from tests.csi_driver import NODES, driver, ground

TIMEOUT_S = 300.0
PASS = 42
"""So many of its 103 tests are about what the driver can do; it skips the others by itself."""


def test_csi_sanity_passes(tmp_path: Path) -> None:
    programs = csi.obtain(print)
    report = tmp_path / "told.json"
    with ground(tmp_path) as on, driver(on):
        argv = [
            str(programs / csi.SANITY),
            f"--csi.controllerendpoint={on.controller}",
            f"--csi.endpoint={on.node(NODES[0])}",
            f"--csi.mountdir={tmp_path / 'mount'}",
            f"--csi.stagingdir={tmp_path / 'staging'}",
            "--csi.testnodevolumeattachlimit",
            f"--ginkgo.json-report={report}",
        ]
        process = proc.run(argv, timeout_s=TIMEOUT_S, cwd=tmp_path, check=False)
    assert process.status == 0, process.stdout
    states = [spec["State"] for spec in json.loads(report.read_text())[0]["SpecReports"]]
    assert states.count("passed") == PASS, process.stdout
    assert set(states) <= {"passed", "skipped", "pending"}
    assert {line["node"] for line in on.lines() if line["method"] == "NodeStageVolume"} == {NODES[0]}
    assert list((tmp_path / "table" / "volumes").iterdir()) == [], "each volume is deleted again"


def test_programs_print_their_versions(tmp_path: Path) -> None:
    programs = csi.obtain(print)
    versions = {csi.ATTACHER: "v4.12.0", csi.SANITY: "v5.6.0"}
    outputs = {name: proc.run([str(programs / name), "--version"], timeout_s=120).stdout for name in versions}
    assert [name for name in versions if versions[name] not in outputs[name]] == [], outputs
