"""What a run's workers left behind when they did not end in order."""

from __future__ import annotations

import contextlib
from pathlib import Path

from nodeproof.labs.client import registry
from nodeproof.labs.client.healing import heal
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.ledger import Ledger
from nodeproof.session.gate import Gate
from nodeproof.session.options import Options
from nodeproof.session.sharing import Shared


def heal_zones(run: Path, options: Options) -> list[str]:
    """Heal what workers that were killed left in their zones of a lab that is not ours; gives what could not
    be.
    """
    noted = [
        path.stem.removeprefix(f"{options.lab}-") for path in (run / "labs").glob(f"{options.lab}-*.json")
    ]
    lost = {entry.lease for entry in Ledger(options.lab).unfinished()} & set(noted) if options.zone else ()
    left = []
    for zone in sorted(lost):
        try:
            heal(options.lab, zone)
        except Problem as problem:
            left.append(f"zone {zone} of lab {options.lab}: {problem}; run `nodeproof heal`")
    return left


def end_labs(run: Path, options: Options) -> list[str]:
    """Tear down labs of this run that outlived their worker; one attached to is not ours. Gives their
    names.
    """
    if not options.is_ours:
        return []
    mine = (
        {path.name for path in (run / "labs").iterdir() if path.is_dir()}
        if (run / "labs").is_dir()
        else set()
    )
    left = sorted(mine & set(registry.running()))
    for name in left:
        # Whoever was to keep them is gone.
        with (
            contextlib.suppress(Problem, OutsideError, OSError),
            contextlib.closing(registry.attach(name)) as lab,
        ):
            lab.keep_logs(run / "labs")
        registry.down(name)
    for kept in (Shared, Gate):
        kept.remove_files(run / "labs")
    return left
