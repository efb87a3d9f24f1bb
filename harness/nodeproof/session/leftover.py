"""Clean up after workers of a run that did not shut down cleanly."""

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
    """Heal the zones of killed workers in a lab that the run attached to; return a line for each failure."""
    leased = [
        path.stem.removeprefix(f"{options.lab}-") for path in (run / "labs").glob(f"{options.lab}-*.json")
    ]
    faulty = {entry.lease for entry in Ledger(options.lab).unfinished()} & set(leased) if options.zone else ()
    failures = []
    for zone in sorted(faulty):
        try:
            heal(options.lab, zone)
        except Problem as problem:
            failures.append(f"zone {zone} of lab {options.lab}: {problem}; run `nodeproof heal`")
    return failures


def end_labs(run: Path, options: Options) -> list[str]:
    """Tear down the labs that this run started and that outlived their worker; return their names."""
    if not options.is_ours:
        return []
    own = (
        {path.name for path in (run / "labs").iterdir() if path.is_dir()}
        if (run / "labs").is_dir()
        else set()
    )
    orphaned = sorted(own & set(registry.running()))
    for name in orphaned:
        # The worker that would have kept the logs is gone.
        with (
            contextlib.suppress(Problem, OutsideError, OSError),
            contextlib.closing(registry.attach(name)) as lab,
        ):
            lab.keep_logs(run / "labs")
        registry.down(name)
    for cleanup in (Shared, Gate):
        cleanup.remove_files(run / "labs")
    return orphaned
