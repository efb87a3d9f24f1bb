"""Volumes of a lab: upstream's external-attacher and, beside it, the CSI driver."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof.labs.ground.spec import DRIVER, LabSpec
from nodeproof.model.needs import ATTACHER

ATTACHER_PORT = 10261
"""Next to the ports of Kubernetes; external-attacher has no default port."""
DISKS = "disks"
"""The script, beside the folders of components, that lists and changes the hypervisor's disks."""
_WITH_DRIVER = """
served=
{each}
setpriv --pdeathsig=KILL -- sh -c 'setpriv --pdeathsig=KILL -- "$@"; kill -KILL "$PPID"' \\
    beside {driver} $served &
exec "$0" "$@"
"""
"""PDEATHSIG ends the driver whenever its parent dies. The other direction needs the explicit kill:
external-attacher ends by itself only if it was connected to the driver before.
"""


@dataclass(frozen=True)
class Place:
    """Where a lab's driver keeps its files.

    `settings` contains the component's own folder, `home`, for its state; `nodes` contains the folders of the
    nodes.
    """

    spec: LabSpec
    settings: Path
    nodes: Path

    @property
    def home(self) -> Path:
        """The component's own folder."""
        return self.settings / ATTACHER


@dataclass(frozen=True)
class Served:
    """How a kind of lab serves the driver.

    `options` name the hypervisor and how to reach its nodes. `each` is a shell script that sets `served` to
    the options for the nodes that exist when it runs.
    """

    options: Sequence[str]
    each: str


Serves = Callable[[Place], Served]


def external_attacher(place: Place, served: Served, config: Path) -> list[str]:
    """Return the command that runs external-attacher, with upstream's defaults, and the CSI driver.

    If either of the two ends, so does the other. Also writes the script `DISKS`. Raises OSError.
    """
    home = place.home
    _write_disks(place, served)
    driver = [*_python(place, "infra.csi"), *served.options, f"--endpoint=unix://{home}/csi.sock"]
    flags = {
        "csi-address": f"{home}/csi.sock",
        "http-endpoint": f"127.0.0.1:{ATTACHER_PORT}",
        "kubeconfig": str(config),
    }
    script = _WITH_DRIVER.format(
        each=served.each, driver=shlex.join([*driver, f"--calls={home}/calls.jsonl"])
    )
    own = [f"--{name}={value}" for name, value in flags.items()]
    return ["sh", "-c", script, place.spec.volumes[ATTACHER], *own]


def _write_disks(place: Place, served: Served) -> None:
    """Write the script to the working folder of commands that run beside a component."""
    argv = shlex.join([*_python(place, "infra.csi.disks"), *served.options])
    (place.settings / DISKS).write_text(f'exec {argv} "$@"\n')


def _python(place: Place, module: str) -> list[str]:
    return ["env", f"PYTHONPATH={place.spec.volumes[DRIVER]}", sys.executable, "-P", "-B", "-m", module]
