"""Generate `protocol/` from the .proto files of the modules in go.mod (`make stubs`).

The result is checked in: a lab start needs neither Go nor a compiler, and protocol changes are reviewed.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import components, csi
from nodeproof.artifacts.build import go_environment

_TIMEOUT_S = 600.0
_INIT = '''"""Messages and services of the protocol, made by `make stubs` from the published .proto files."""

SPECIFICATION = "{version}"
"""The version of the module that csi.proto is from."""
'''
_SPEC = "github.com/container-storage-interface/spec"
_KUBELET = "k8s.io/kubelet"


def specification(recipe: Path) -> str:
    """Return the protocol version that csi-sanity and external-attacher are built with. Raises ValueError."""
    match = re.search(rf"^\s+{re.escape(_SPEC)} (v\S+)", (recipe / "go.mod").read_text(), re.MULTILINE)
    if match is None:
        raise ValueError(f"{recipe}/go.mod names no {_SPEC}")
    return match[1]


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
        proc.run([*argv, f"--pyi_out={target}", *sources], timeout_s=_TIMEOUT_S, cwd=Path(folder))
    (target / "__init__.py").write_text(_INIT.format(version=specification(recipe)))


def _module(recipe: Path, module: str) -> Path:
    """Return the folder with a module's sources; download them if needed."""
    go, env = components.go_for(recipe, print), go_environment()
    proc.run([go, "mod", "download", module], timeout_s=_TIMEOUT_S, cwd=recipe, env=env)
    argv = [go, "list", "-m", "-f", "{{.Dir}}", module]
    return Path(proc.run(argv, timeout_s=_TIMEOUT_S, cwd=recipe, env=env).stdout.strip())


if __name__ == "__main__":
    main()
