"""How much CPU time and memory `nodeproof recheck` takes for an hour of recording.

Run `.venv/bin/python -m infra.bench.hour RUN` with the run of a storm: its recording is repeated until it
lasts an hour, each time with other objects of the same names. The verdicts do not matter: the final LIST
does not fit.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from nodeproof import proc
from nodeproof.model.history import Entry
from nodeproof.report.digest import CONFORMS, DEVIATES, UNPROVEN
from nodeproof.session.storm import FILE

HOUR_S = 3600.0
_TIME = re.compile(r'"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?)Z"')
_UID = re.compile(r'"(uid|value|id|nodeproof.dev/sentinel)":"')
_REVISION = re.compile(r'"(resourceVersion|rv)":"(\d+)"')


def repeated(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield a recording again and again, until it lasts an hour; only the last one ends."""
    lasted_s = entries[-1].t - entries[0].t
    newest = max(int(revision) for entry in entries for _key, revision in _REVISION.findall(entry.to_json()))
    times = int(HOUR_S / lasted_s) + 1
    for number in range(times):
        for entry in entries:
            is_once = {"begun": number == 0, "ended": number == times - 1, "fence": number == times - 1}
            if is_once.get(entry.kind, True):
                yield _shifted(entry, number, number * lasted_s, number * newest)


def _shifted(entry: Entry, number: int, by_s: float, revisions: int) -> Entry:
    line = _UID.sub(rf'"\g<1>":"{number}-', entry.to_json())
    line = _REVISION.sub(lambda match: f'"{match[1]}":"{int(match[2]) + revisions}"', line)
    later = timedelta(seconds=by_s)
    line = _TIME.sub(lambda match: f'"{(datetime.fromisoformat(match[1]) + later).isoformat()}Z"', line)
    shifted = Entry.from_json(line)
    return Entry(shifted.t + by_s, shifted.kind, shifted.data)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m infra.bench.hour", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a storm's run")
    run: Path = parser.parse_args().run
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(run, f"{folder}/run", ignore=shutil.ignore_patterns("recheck")))
        (path,) = (schedule.parent / "history.jsonl" for schedule in copy.glob(f"scenarios/*/{FILE}"))
        entries = [Entry.from_json(line) for line in path.read_text().splitlines()]
        lines = [f"{entry.to_json()}\n" for entry in repeated(entries)]
        path.write_text("".join(lines))
        argv = [sys.executable, "-m", "nodeproof.cli", "recheck", "--no-site", str(copy)]
        result = proc.run(argv, timeout_s=600, check=False)
        if result.status not in (CONFORMS, DEVIATES, UNPROVEN):
            raise SystemExit(result.stderr)
        sys.stdout.write(result.stdout)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    figures = {"entries": len(lines), "cpu_s": used.ru_utime + used.ru_stime, "MiB": used.ru_maxrss / 1024}
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
