"""`nodeproof new`: the smallest working scenario, fault or claims, each with its test."""

from __future__ import annotations

import keyword
import re
import sys
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
        next_step = "use lower case, digits and dashes, as in power-loss"
        raise Problem(f"{name!r} is not a name", _WHERE, next_step)
    module = name.replace("-", "_")
    if kind == "fault" and (keyword.iskeyword(module) or module in (*sys.stdlib_module_names, "pytest")):
        raise Problem(f"{name} is a keyword or module of Python", _WHERE, "choose another name")
    names = {"name": name, "module": module, "class_name": name.title().replace("-", "")}
    return {
        path.replace("NAME", name).replace("MODULE", module): Template(
            (_EXAMPLES / f"{path}.txt").read_text(encoding="utf-8")
        ).substitute(names)
        for path in _FILES[kind]
    }


def write(kind: str, name: str, folder: Path) -> list[Path]:
    """Write an example into a folder, and return its files; keep a `pytest.ini` that sets `nodeproof_claims`.

    Raises:
        Problem: The name is invalid, a file exists, or the folder has settings of pytest elsewhere; nothing
            was written. Or a file cannot be written.
    """
    files = {folder / path: text for path, text in render(kind, name).items()}
    try:
        if folder / _INI in files and _has_claims(folder):
            del files[folder / _INI]
        for path in files:
            if path.exists():
                raise Problem(f"{path} exists", _WHERE, "choose another name, or another --folder")
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except (OSError, UnicodeError) as error:
        message, next_step = "the example cannot be written", "choose another --folder"
        raise Problem(message, str(folder), next_step, str(error)) from error
    return list(files)


def _has_claims(folder: Path) -> bool:
    """Return whether pytest finds claims by the settings of a folder.

    Raises:
        Problem: There are settings without claims, which a new `pytest.ini` would hide.
        OSError, UnicodeError: They cannot be read.
    """
    # In the order of pytest, which reads the first of them only.
    sections = dict.fromkeys(("pytest.toml", ".pytest.toml", _INI, ".pytest.ini"), "[pytest]")
    sections |= {"pyproject.toml": "[tool.pytest", "tox.ini": "[pytest]", "setup.cfg": "[tool:pytest]"}
    for name, section in sections.items():
        path = folder / name
        if path.is_file() and section in (text := path.read_text(encoding="utf-8")):
            if "nodeproof_claims" in text:
                return True
            next_step = "add nodeproof_claims = claims to them"
            raise Problem("pytest's settings name no claims", str(path), next_step)
    return False
