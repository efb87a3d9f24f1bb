"""How the harness is laid out, as far as import-linter does not look."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import nodeproof
from nodeproof import proc

TOP = Path(nodeproof.__file__).parent
RULES = "hooks and fixtures only"


def test_the_plugin_is_hooks_and_fixtures() -> None:
    body = ast.parse((TOP / "plugin.py").read_text()).body
    functions = [node for node in body if isinstance(node, ast.FunctionDef)]
    others = [
        node.name for node in functions if not node.name.startswith("pytest_") and not node.decorator_list
    ]
    assert others == ["run_folder"], RULES
    assert not [node for node in body if isinstance(node, ast.ClassDef)], RULES


def test_a_pytest_without_scenarios_loads_no_lab() -> None:
    code = "import sys, nodeproof.plugin; print(*sys.modules)"
    loaded = proc.run([sys.executable, "-c", code], timeout_s=120).stdout.split()
    assert "nodeproof.plugin" in loaded
    assert [name for name in loaded if name.startswith(("nodeproof.labs", "nodeproof.artifacts"))] == []
