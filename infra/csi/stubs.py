"""Writes `protocol/` anew: the messages of the .proto files of the modules that go.mod names.

A developer's step, `make stubs`. What it writes is checked in: a lab that starts needs neither Go nor a
compiler, and a change of the protocol is seen where it is reviewed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import components, csi
from nodeproof.artifacts.go import find_go, go_environment, wanted_go

_LIMIT_S = 600.0
_INIT = '''"""Messages and services of the protocol, made by `make stubs` from the published .proto files."""

SPECIFICATION = "{version}"
"""The version of the module that csi.proto is from."""
'''
_SPEC = "github.com/container-storage-interface/spec"
_KUBELET = "k8s.io/kubelet"


def specification(recipe: Path) -> str:
    """The version of the protocol that csi-sanity and the attacher are built with. Raises ValueError."""
    found = re.search(rf"^\s+{re.escape(_SPEC)} (v\S+)", (recipe / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{recipe}/go.mod names no {_SPEC}")
    return found[1]


def main() -> None:
    """Compile both files."""
    recipe, kubernetes = csi.recipe_dir(), components.recipe_dir()
    sources = {
        "csi.proto": _module(recipe, _SPEC) / "csi.proto",
        "registration.proto": _module(kubernetes, _KUBELET) / "pkg/apis/pluginregistration/v1/api.proto",
    }
    target = recipe / "protocol"
    with tempfile.TemporaryDirectory() as folder:
        for name, source in sources.items():
            Path(folder, name).write_text(source.read_text())
        argv = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"--python_out={target}"]
        proc.run([*argv, f"--pyi_out={target}", *sources], timeout_s=_LIMIT_S, cwd=Path(folder))
    (target / "__init__.py").write_text(_INIT.format(version=specification(recipe)))


def _module(recipe: Path, module: str) -> Path:
    """The folder of a module's sources, downloaded where it is missing."""
    go = find_go(wanted_go((recipe / "go.mod").read_text()), components.recipe_dir(), print)
    env = go_environment()
    proc.run([go, "mod", "download", module], timeout_s=_LIMIT_S, cwd=recipe, env=env)
    argv = [go, "list", "-m", "-f", "{{.Dir}}", module]
    return Path(proc.run(argv, timeout_s=_LIMIT_S, cwd=recipe, env=env).stdout.strip())


if __name__ == "__main__":
    main()
