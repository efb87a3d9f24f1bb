"""The Go tests of the executables: choosing a program, the hollow kubelet's runtime and its state."""

from __future__ import annotations

from nodeproof import proc
from nodeproof.artifacts.build import Version, find_go, go_environment, required_go, tag_flags
from nodeproof.artifacts.components import recipe_dir
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

TIMEOUT_S = 1500.0
"""From an empty build cache all of Kubernetes is compiled first."""


def test_go_tests_pass() -> None:
    recipe = recipe_dir()
    go = find_go(required_go((recipe / "go.mod").read_text()), recipe, print)
    tags = tag_flags(Version.parse(DEFAULT_KUBERNETES_VERSION))
    # Vetting would go through all of Kubernetes first.
    argv = [go, "test", "-trimpath", "-vet=off", *tags, "./..."]
    messages: list[str] = []
    proc.stream_lines(argv, messages.append, timeout_s=TIMEOUT_S, cwd=recipe, env=go_environment())

    ran = [line.split()[1] for line in messages if line.startswith("ok ")]
    assert sorted(ran) == [f"nodeproof.dev/components{part}" for part in ("", "/cloud", "/hollow")]
