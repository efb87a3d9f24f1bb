"""Packages with plugins as pip would install them: a module beside a dist-info folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodeproof
from nodeproof import proc
from nodeproof.new import render

LEFT_FILE = render("fault", "left-file")["left-file/left_file.py"]
BROKEN = 'raise RuntimeError("this plugin\\nneeds another Python")\n'
POWER_DRIVER = """
from nodeproof.existing.power import Command


class Pdu:
    name = "acme-pdu"
    package = "acme-tools"

    def __init__(self, options):
        if options.keys() != {"program", "outlets"}:
            raise ValueError("expected the options program and outlets")
        self._argv = [options["program"], options["outlets"]]

    def command(self, action, node, secret):
        return Command([*self._argv, action, node], secret)

    def is_on(self, status):
        return {"on": True, "off": False}[status.stdout.strip()]
"""


def install(folder: Path, name: str, code: str, group: str = "nodeproof.faults", of_module: str = "") -> None:
    """Write the package `acme-NAME`; its entry point is its module `acme_NAME`, or an object of it."""
    module, dist_info = f"acme_{name}", folder / f"acme_{name}-1.2.dist-info"
    (folder / f"{module}.py").write_text(code)
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: acme-{name}\nVersion: 1.2\n")
    (dist_info / "entry_points.txt").write_text(
        f"[{group}]\n{name} = {module}{of_module and f':{of_module}'}\n"
    )


def run_python(folder: Path, *arguments: str, timeout_s: float = 240.0) -> proc.Result:
    """Run Python in `folder`, where it finds nodeproof and the packages in the folder, not the checkout."""
    path = os.pathsep.join([str(folder), str(Path(nodeproof.__file__).resolve().parents[1])])
    argv, env = [sys.executable, "-P", *arguments], {**os.environ, "PYTHONPATH": path}
    return proc.run(argv, timeout_s=timeout_s, cwd=folder, env=env, check=False)
