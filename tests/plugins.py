"""Packages with plugins as pip would install them: a module beside a dist-info folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nodeproof
from nodeproof import proc

LEFT_FILE = '''
"""A fault of another package."""

from __future__ import annotations

from dataclasses import dataclass

from nodeproof.faults import Fault
from nodeproof.machines.machine import Machine, Shell


@dataclass(frozen=True)
class LeftFile(Fault):
    """File on `node` that nobody needs; healing removes it."""

    name = "left-file"

    @property
    def path(self) -> str:
        return f"/run/nodeproof-left-file-{self.id}"

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[LeftFile]:
        script = "ls /run | sed -n 's/^nodeproof-left-file-//p'"
        names = machine.run(["sh", "-c", script], timeout_s=cls.timeout_s).stdout.split()
        return [cls(machine.name, id=name) for name in names]

    def inject(self, machine: Shell) -> None:
        self.run(machine, ["touch", self.path])

    def heal(self, machine: Shell) -> None:
        self.run(machine, ["rm", "-f", self.path])

    def is_injected(self, machine: Machine) -> bool:
        return machine.run(["test", "-e", self.path], timeout_s=self.timeout_s).status == 0

    def is_healed(self, machine: Machine) -> bool:
        return not self.is_injected(machine)
'''
BROKEN = 'raise RuntimeError("this plugin\\nneeds another Python")\n'


def install(folder: Path, name: str, code: str) -> None:
    """Write the package `acme-NAME`, whose module `acme_NAME` has faults."""
    module, dist_info = f"acme_{name}", folder / f"acme_{name}-1.2.dist-info"
    (folder / f"{module}.py").write_text(code)
    dist_info.mkdir()
    (dist_info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: acme-{name}\nVersion: 1.2\n")
    (dist_info / "entry_points.txt").write_text(f"[nodeproof.faults]\n{name} = {module}\n")


def run_python(folder: Path, *arguments: str, timeout_s: float = 240.0) -> proc.Result:
    """Run Python in `folder`, where it finds nodeproof and the packages in the folder, not the checkout."""
    path = os.pathsep.join([str(folder), str(Path(nodeproof.__file__).resolve().parents[1])])
    argv, env = [sys.executable, "-P", *arguments], {**os.environ, "PYTHONPATH": path}
    return proc.run(argv, timeout_s=timeout_s, cwd=folder, env=env, check=False)
