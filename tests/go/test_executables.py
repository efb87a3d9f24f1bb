"""The Go tests of the executables: choosing a program, the hollow kubelet's runtime and its state."""

from __future__ import annotations

from nodeproof import proc
from nodeproof.artifacts.components import recipe_dir
from nodeproof.artifacts.go import find_go, go_environment, wanted_go

LIMIT_S = 1500.0
"""From an empty build cache all of Kubernetes is compiled first."""


def test_the_go_tests_pass() -> None:
    recipe = recipe_dir()
    go = find_go(wanted_go((recipe / "go.mod").read_text()), recipe, print)
    # Vetting would go through all of Kubernetes first.
    argv = [go, "test", "-trimpath", "-vet=off", "./..."]
    said: list[str] = []
    proc.stream_lines(argv, said.append, timeout_s=LIMIT_S, cwd=recipe, env=go_environment())

    ran = [line.split()[1] for line in said if line.startswith("ok ")]
    assert sorted(ran) == [f"nodeproof.dev/components{part}" for part in ("", "/cloud", "/hollow")]
