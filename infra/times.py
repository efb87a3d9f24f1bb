"""Ship the times of a run: `python -m infra.times RUN` puts them into scenarios/times.json, under the run's
profile and lab. Whoever has no earlier runs plans by them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodeproof.report.rundir import TIMES, read_facts, read_json

SHIPPED = Path(__file__).parents[1] / "scenarios" / "times.json"


def ship(run: Path) -> None:
    """Put a run's times (s) in place of those that are there for its profile and lab. Raises Problem."""
    facts = read_facts(run)
    took = sorted(read_json(run / TIMES).items())
    times = {name.removeprefix("scenarios/"): round(float(took_s), 1) for name, took_s in took}
    all_times = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
    all_times[f"{facts.profile}-{facts.lab}"] = times
    SHIPPED.write_text(json.dumps(all_times, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
