"""Claims that mean harm are refused with their place, at once, and do nothing."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from nodeproof import catalogue
from nodeproof.model.problem import Problem

LIMIT_S = 1.0
BOMB = "\n".join(f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]" for level in range(9))
TEXTS = {
    "alias bomb": f"a0: &a0 [x, x]\n{BOMB}\n",
    "aliases": "- &a\n  id: cordon.one\n- *a\n",
    "duplicate keys": "- id: cordon.one\n  area: cordon\n  area: monitoring\n",
    "a path for a name": "- id: ../../etc/passwd\n  area: cordon\n",
    "shell metacharacters": "- id: cordon.$(touch /tmp/nodeproof-was-here);`id`|x\n  area: cordon\n",
    "5,000 levels": "- " * 5000 + "x\n",
    "5,000 brackets": "[" * 5000,
    "an object of Python's": "- !!python/object/apply:os.system [touch /tmp/nodeproof-was-here]\n",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_file_is_refused_with_file_line_and_column(name: str, tmp_path: Path) -> None:
    path = tmp_path / "hostile.yaml"
    path.write_text(TEXTS[name])
    began = time.thread_time()
    with pytest.raises(Problem) as caught:
        catalogue.load([tmp_path])
    assert time.thread_time() - began < LIMIT_S
    file, line, column = caught.value.where.rsplit(":", 2)
    assert (file, line.isdigit(), column.isdigit()) == (str(path), True, True)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    assert not Path("/tmp/nodeproof-was-here").exists()


@pytest.mark.parametrize("target", ["/etc/passwd", "../outside.yaml", "/dev/zero", "hostile.yaml"])
def test_a_link_out_of_the_folder_is_refused(target: str, tmp_path: Path) -> None:
    folder = tmp_path / "claims"
    folder.mkdir()
    (tmp_path / "outside.yaml").write_text("- id: cordon.one\n")
    (folder / "hostile.yaml").symlink_to(target)
    began = time.thread_time()
    with pytest.raises(Problem, match="not a file inside its folder"):
        catalogue.load([folder])
    assert time.thread_time() - began < LIMIT_S
