"""Builds of a checkout by Go itself, of programs that only print their version."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nodeproof import proc
from nodeproof.artifacts import components
from nodeproof.artifacts.build import VERSION_TIMEOUT_S
from nodeproof.artifacts.checkout import read_checkout
from nodeproof.artifacts.components import obtain_from
from nodeproof.model.problem import Problem
from tests.checkouts import contents, write_checkout

MAIN = """\
package main

import (
	"fmt"

	"k8s.io/component-base/version"
	"k8s.io/kubernetes/pkg/limits"
)

func main() { fmt.Println("Kubernetes", version.Get(), limits.Pods) }
"""
EDITED = "package limits\n\nconst Pods = 111\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a checkout; the recipe builds one program from it and from a module of its staging."""
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    lock = components.recipe_dir() / "requirements-go.lock"
    (recipe / lock.name).write_text(lock.read_text())
    (recipe / "go.mod").write_text("module nodeproof.dev/components\n\ngo 1.26.0\n")
    (recipe / "go.sum").touch()
    (recipe / "main.go").write_text(MAIN)
    monkeypatch.setattr(components, "recipe_dir", lambda: recipe)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_checkout(tmp_path / "my kubernetes")


def test_executables_are_built_from_the_checkout_which_is_only_read(checkout: Path) -> None:
    for text, pods in (("", "110"), (EDITED, "111")):
        if text:
            (checkout / "pkg/limits/limits.go").write_text(text)
        before = contents(checkout)
        executables = obtain_from(read_checkout(checkout, "v1.36.3"), print)
        assert contents(checkout) == before
        output = proc.run([str(executables.path("kubelet"))], timeout_s=VERSION_TIMEOUT_S).stdout
        assert output.split() == ["Kubernetes", "v1.36.3", pods]


def test_first_error_of_the_compiler_is_reported(checkout: Path) -> None:
    (checkout / "pkg/limits/limits.go").write_text("package limits\n\nconst Pods = Many\n")
    error = f"{checkout}/pkg/limits/limits.go:3:14: undefined: Many"
    with pytest.raises(Problem, match=re.escape(f"the build failed: {error}")):
        obtain_from(read_checkout(checkout, "v1.36.3"), print)
