"""The package: its files, its extras in the lock file, its versions, and the driver without its extra."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra import csi, dist
from nodeproof import proc

PINS = dict(re.findall(r"^([\w.-]+)==(\S+)", (dist.TOP / "requirements.lock").read_text(), re.MULTILINE))
PROJECT = dist.PROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [*PROJECT["dependencies"], *EXTRAS["csi"], *EXTRAS["lab"], *EXTRAS["dev"]]


def wheel_with(names: set[str], folder: Path) -> Path:
    path = folder / "nodeproof-0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(names):
            archive.writestr(name, "")
    return path


def test_wheel_has_exactly_the_tracked_files(tmp_path: Path) -> None:
    names = set(dist.expected_files())
    dist.check_files(wheel_with(names, tmp_path))
    template = "nodeproof/report/templates/page.html"
    with pytest.raises(dist.CheckFailed, match=f"lacks {re.escape(str([template]))}"):
        dist.check_files(wheel_with(names - {template}, tmp_path))
    with pytest.raises(dist.CheckFailed, match="nodeproof/remains"):
        dist.check_files(wheel_with(names | {"nodeproof/remains"}, tmp_path))


@pytest.mark.parametrize("requirement", [text for text in REQUIREMENTS if not text.startswith("nodeproof[")])
def test_lock_satisfies_the_extras(requirement: str) -> None:
    needed = Requirement(requirement)
    assert PINS[needed.name] in needed.specifier


def test_driver_has_the_version_of_the_package() -> None:
    assert PROJECT["version"] == csi.VERSION


def test_driver_without_grpc_names_its_extra() -> None:
    code = "import sys; sys.modules['grpc'] = None; import infra.csi"
    process = proc.run([sys.executable, "-c", code], timeout_s=60.0, cwd=dist.TOP, check=False)
    assert process.status == 2
    assert process.stderr == "csi driver: not installed: grpcio; run `pip install 'nodeproof[csi]'`\n"
