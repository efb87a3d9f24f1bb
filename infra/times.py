"""Ship the times of a run: `python -m infra.times RUN` writes them to scenarios/times.json.

They are stored by profile and kind of lab, for plans without earlier runs.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from nodeproof.report.rundir import TIMES, read_facts, read_json

SHIPPED = Path(__file__).parents[1] / "scenarios" / "times.json"


def ship(run: Path) -> None:
    """Replace the shipped times (s) of the run's profile and kind of lab. Raises Problem."""
    facts = read_facts(run)
    durations_s = sorted(read_json(run / TIMES).items())
    times = {name.removeprefix("scenarios/"): round(float(took_s), 1) for name, took_s in durations_s}
    all_times = json.loads(SHIPPED.read_text()) if SHIPPED.exists() else {}
    all_times[f"{facts.profile}-{facts.lab}"] = times
    SHIPPED.write_text(json.dumps(all_times, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    ship(Path(sys.argv[1]))
