"""`nodeproof new`: the smallest working scenario, fault or claims, each with its test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from string import Template

from nodeproof.model.problem import Problem

_INI = "pytest.ini"
_FILES: Mapping[str, tuple[str, ...]] = {
    "scenario": (_INI, "claims/NAME.yaml", "test_MODULE.py"),
    "claims": (_INI, "claims/NAME.yaml", "test_MODULE_claims.py"),
    "fault": ("NAME/pyproject.toml", "NAME/MODULE.py", "NAME/test_MODULE.py"),
}
"""The files of each kind; their templates are in `examples/`."""
KINDS = tuple(_FILES)
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_EXAMPLES = Path(__file__).parent / "examples"
_WHERE = "nodeproof new"


def render(kind: str, name: str) -> Mapping[str, str]:
    """Return the content of the files of an example by their paths. Raises Problem."""
    if not _NAME.fullmatch(name):
        raise Problem(
            f"{name!r} is not a name", _WHERE, "use lower case, digits and dashes, as in power-loss"
        )
    module = name.replace("-", "_")
    names = {"name": name, "module": module, "class_name": name.title().replace("-", "")}
    return {
        path.replace("NAME", name).replace("MODULE", module): Template(
            (_EXAMPLES / f"{path}.txt").read_text()
        ).substitute(names)
        for path in _FILES[kind]
    }


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write an example into a folder, and return its files; a `pytest.ini` with claims stays.

    Raises:
        Problem: The name is invalid, or a file exists; nothing was written.
    """
    files = {folder / path: text for path, text in render(kind, name).items()}
    ini = folder / _INI
    if ini in files and ini.exists() and "nodeproof_claims" in ini.read_text():
        del files[ini]
    for path in files:
        if path.exists():
            raise Problem(f"{path} exists", _WHERE, "choose another name, or another --folder")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return list(files)
