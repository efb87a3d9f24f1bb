"""Volumes of a lab: upstream's external-attacher, and beside it the CSI driver."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof.labs.ground.spec import DRIVER, LabSpec
from nodeproof.model.needs import ATTACHER

ATTACHER_PORT = 10261
"""Beside those of Kubernetes; external-attacher has none of its own."""
DISKS = "disks"
"""The script, beside the folders of components, that tells and does what a hypervisor's disks are."""
_WITH_DRIVER = """
served=
{each}
setpriv --pdeathsig=KILL -- sh -c 'setpriv --pdeathsig=KILL -- "$@"; kill -KILL "$PPID"' \\
    beside {driver} $served &
exec "$0" "$@"
"""
"""The kernel ends a process with PDEATHSIG together with the one that started it, whoever kills that. The
other way round external-attacher ends by itself only where it was connected before.
"""


@dataclass(frozen=True)
class Place:
    """Where a lab's driver is: below `settings` is the component's own folder, `home`, in which it keeps what
    it has; below `nodes` are the folders of the nodes.
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
    """How a kind of lab serves the driver: `options` say what its hypervisor is and how its nodes are
    reached, `each` is a shell script that puts into `served` the options for the nodes that there are then.
    """

    options: Sequence[str]
    each: str


Serves = Callable[[Place], Served]


def external_attacher(place: Place, served: Served, config: Path) -> list[str]:
    """external-attacher with upstream's defaults, and beside it the CSI driver, which ends with it; if the
    driver ends first, so does it. The script `DISKS` is there from now on. Raises OSError.
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
    """Put it where commands beside a component run."""
    argv = shlex.join([*_python(place, "infra.csi.disks"), *served.options])
    (place.settings / DISKS).write_text(f'exec {argv} "$@"\n')


def _python(place: Place, module: str) -> list[str]:
    return ["env", f"PYTHONPATH={place.spec.volumes[DRIVER]}", sys.executable, "-P", "-B", "-m", module]
