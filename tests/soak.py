"""Kills of random parts at random moments of random faults.

Run `python -m tests.soak --rounds N --seed S [--part PART]`. After each kill comes `nodeproof heal`, and
everything that is there is compared with what was there before. A round's seed is printed: `--seed S-K`
repeats that round alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts.components import obtain
from nodeproof.labs.client import registry, starting
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.kinds import KINDS, LIBVIRT, PROCESS
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION
from nodeproof.report import rundir
from tests import leftovers
from tests.acceptance.command import TOP, labs_of, nodeproof, the_run
from tests.acceptance.conftest import SMALL_SCENARIO
from tests.contract.kinds import FAULTS
from tests.contract.victim import HOLD
from tests.lab_snapshot import snapshot
from tests.waiting import eventually, pause

SAME_TIMEOUT_S = {PROCESS.name: 60.0, LIBVIRT.name: 180.0}
"""A node that had no power boots and becomes Ready, and its taints go."""
RUN_ENDS_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
HARMED_SHARE = 0.5
"""At least so many of the rounds that hold a fault must find it on its way in, or in."""
FIRST_STEP_TIMEOUT_S = 60.0
FROM_FIRST_STEP = 0.8
"""In so many of the rounds the moment is counted from the first step, else from the start of Python."""
LAB_PARTS = ("supervisor", "init", "lab server")
WEIGHTS = {
    "harness": 5, "pytest": 3, "heal": 4, "supervisor": 1, "init": 1, "lab server": 1,
    "worker": 1, "lease holder": 1, "controller": 1,
}  # fmt: skip


WORKERS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "worker": (2, 2, ("--dist=loadfile",)),
    "lease holder": (4, 6, ()),
    "controller": (4, 6, ()),
}
"""How many workers run how many scenarios, and the options by which each has a lab or a zone."""


class Different(Exception):
    """Something is not as it was."""


@dataclass
class Ground:
    """Where the rounds take place: a kept lab, which lives as long as no round kills it."""

    kind: str
    folder: Path
    lab: LabHandle | None = None
    reached: list[str] = field(default_factory=list)
    """The last step that each fault had taken when somebody was killed; empty before its first."""

    def ready(self) -> LabHandle:
        """Return the kept lab, a new one if there is none."""
        if self.lab is None:
            request = starting.LabRequest(starting.new_name(), 2, 1, "fast", True, self.kind)
            self.lab = starting.up(request, obtain("build", DEFAULT_KUBERNETES_VERSION, _quiet), _quiet)
            self.lab.prepare()
        self.lab.wait_nodes_ready()
        return self.lab

    def forget(self) -> None:
        """Forget the lab that a round ended."""
        if self.lab is not None:
            self.lab.close()
        self.lab = None

    def down(self) -> None:
        """End what is left."""
        if self.lab is not None:
            self.lab.down()
        self.lab = None


def main() -> int:
    """Run the rounds; 1 as soon as something is left or does not heal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--lab", default=PROCESS.name, choices=KINDS)
    parser.add_argument("--part", choices=WEIGHTS, help="kill only this, in every round")
    arguments = parser.parse_args()
    alone = "-" in arguments.seed
    seeds = (
        [arguments.seed] if alone else [f"{arguments.seed}-{number}" for number in range(arguments.rounds)]
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        # Ledgers of these rounds are no business of the user's.
        os.environ["XDG_STATE_HOME"] = folder
        ground = Ground(arguments.lab, Path(folder))
        try:
            for seed in seeds:
                _round(ground, seed, arguments.part)
        except Different as difference:
            print(f"soak: round {seed}: {difference}", flush=True)
            return 1
        finally:
            ground.down()
    print(f"soak: {len(seeds)} rounds, nothing was left", flush=True)
    return 0 if alone or arguments.part else _check_harm(ground.reached)


def _check_harm(reached: list[str]) -> int:
    """Return 1 if too many rounds had harmed nothing yet: these prove little."""
    harmed = [step for step in reached if step not in ("", "planned", "armed")]
    print(f"soak: in {len(harmed)} of {len(reached)} rounds with a fault it was on its way or in", flush=True)
    return 0 if len(harmed) >= HARMED_SHARE * len(reached) else 1


def _round(ground: Ground, seed: str, only: str | None) -> None:
    dice = random.Random(seed)  # noqa: S311  no secret depends on it
    drawn = dice.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    part = only or drawn
    if ground.kind == LIBVIRT.name and part in WORKERS:
        part = "pytest"
    began = time.monotonic()
    text = (_kill_in_a_run if part in WORKERS else _kill_beside_a_lab)(ground, part, dice)
    print(f"soak: round {seed}: {part}: {text}, {time.monotonic() - began:.1f} s in all", flush=True)


def _kill_beside_a_lab(ground: Ground, part: str, dice: random.Random) -> str:
    lab = ground.ready()
    before, host = snapshot(lab), leftovers.footprint(lab.name)
    name, node = dice.choice(sorted(FAULTS)), dice.choice(lab.fleet.node_names())
    fault = FAULTS[name](node)
    while fault.available(lab.fleet.machine(node)):
        name = dice.choice(sorted(FAULTS))
        fault = FAULTS[name](node)
    after_s = dice.uniform(0.0, 25.0 if part == "pytest" else 4.0)
    text = f"{name} on {node}, killed after {after_s:.1f} s"
    argv = [sys.executable, "-m", "tests.contract.victim", lab.name, json.dumps(fault.to_json()), HOLD]
    if part == "pytest":
        argv = _run(ground, "--lab", lab.name)
        text = f"a whole run, killed after {after_s:.1f} s"
    child = proc.start(argv, log=ground.folder / "log", cwd=TOP if part != "pytest" else ground.folder)
    if part != "pytest" and dice.random() < FROM_FIRST_STEP:
        eventually(lambda: _step(lab), FIRST_STEP_TIMEOUT_S)
    pause(after_s)
    step = _step(lab)
    if part != "pytest":
        ground.reached.append(step)
    text += f" at step {step or 'none'}"
    if part in LAB_PARTS:
        leftovers.kill(_pid_of(part, host))
    child.kill()
    child.wait(timeout=END_TIMEOUT_S)
    if part == "heal":
        text += f", its heal {_kill_a_heal(ground, lab, dice):.1f} s after its start"
    if part in LAB_PARTS:
        return text + _check_removed(ground, host)
    return text + _is_healed(ground, lab, before)


def _step(lab: LabHandle) -> str:
    """Return the last step in the ledger, empty if nothing is open."""
    unfinished = lab.safety.ledger.unfinished()
    return unfinished[-1].step if unfinished else ""


def _kill_a_heal(ground: Ground, lab: LabHandle, dice: random.Random) -> float:
    argv = [sys.executable, "-m", "nodeproof.cli", "heal", "--lab-name", lab.name]
    child = proc.start(argv, log=ground.folder / "log", cwd=ground.folder)
    after_s = dice.uniform(0.0, 3.0)
    pause(after_s)
    child.kill()
    child.wait(timeout=END_TIMEOUT_S)
    return after_s


def _is_healed(ground: Ground, lab: LabHandle, before: list[str]) -> str:
    """Heal, and compare; a node that had no power takes its time to be Ready."""
    began = time.monotonic()
    process = nodeproof("heal", "--lab-name", lab.name, cwd=ground.folder)
    took_s = time.monotonic() - began
    if process.status != 0:
        raise Different(f"heal: {process.stderr.strip()}")
    if not eventually(lambda: snapshot(lab) == before, SAME_TIMEOUT_S[ground.kind]):
        raise Different("\n".join(difflib.unified_diff(before, snapshot(lab), "before", "after", n=0)))
    return f", healed in {took_s:.1f} s"


def _check_removed(ground: Ground, host: leftovers.Footprint) -> str:
    """Check that a lab without one of its required parts ends, and is swept."""
    ground.forget()
    began = time.monotonic()
    if not eventually(lambda: host.lab not in registry.running(), END_TIMEOUT_S):
        raise Different(f"lab {host.lab} still runs")
    registry.sweep()
    left = leftovers.leftovers(host)
    ledger = list((ground.folder / "nodeproof" / "ledger").glob(f"{host.lab}*"))
    if left or ledger:
        raise Different(f"left: {left} {ledger}")
    return f", removed in {time.monotonic() - began:.1f} s"


def _kill_in_a_run(ground: Ground, part: str, dice: random.Random) -> str:
    """Kill one of a run's workers, or their controller, at some moment of its life."""
    count, scenarios, options = WORKERS[part]
    folder = Path(tempfile.mkdtemp(dir=ground.folder))
    tables = leftovers.host_tables()
    others = [folder / f"test_{number}.py" for number in range(1, scenarios)]
    for other in others:
        other.write_text(SMALL_SCENARIO)
    argv = _run(Ground(ground.kind, folder), "-n", str(count), *options, *map(str, others))
    child = proc.start(argv, log=folder / "log", cwd=folder)
    run = eventually(lambda: the_run(folder), END_TIMEOUT_S)
    running = eventually(lambda: _workers(child.pid, count), END_TIMEOUT_S)
    after_s = dice.uniform(0.0, 40.0)
    pause(after_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid if part == "controller" else dice.choice(running), signal.SIGKILL)
    assert run is not None
    if part == "controller":
        return _check_all_ended(run, running, tables) + f", killed after {after_s:.1f} s"
    return _the_others_go_on(child, folder, run, tables) + f", killed after {after_s:.1f} s"


def _check_all_ended(run: Path, workers: Sequence[int], tables: str) -> str:
    """Check that workers without a controller end by themselves, and their lab with the last of them."""
    began = time.monotonic()
    if not eventually(lambda: not any(map(_is_alive, workers)), RUN_ENDS_TIMEOUT_S):
        raise Different(f"workers live: {list(filter(_is_alive, workers))}")
    if not eventually(lambda: not set(labs_of(run)) & set(registry.running()), END_TIMEOUT_S):
        raise Different(f"labs run: {set(labs_of(run)) & set(registry.running())}")
    registry.sweep()
    _nothing_left(run, tables)
    return f"all ended in {time.monotonic() - began:.1f} s"


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def _the_others_go_on(child: proc.Process, folder: Path, run: Path, tables: str) -> str:
    """They don't notice."""
    try:
        status = child.wait(timeout=RUN_ENDS_TIMEOUT_S)
    except proc.TimeoutExpired as error:
        child.kill()
        raise Different(f"the run hangs: {(folder / 'log').read_text()[-2000:]}") from error
    _nothing_left(run, tables)
    coded = [row for row in rundir.read_verdicts(run) if row["code"]]
    wrong = [row for row in coded if not str(row["scenario"]).endswith("(its worker died)")]
    if wrong:
        raise Different(f"verdicts beside a killed worker: {[(row['code'], row['reason']) for row in wrong]}")
    return f"the run ended with {status}"


def _nothing_left(run: Path, tables: str) -> None:
    left = [line for lab in labs_of(run) for line in leftovers.leftovers_of(lab, tables)]
    if left:
        raise Different(f"the run left {left}")


def _workers(controller: int, count: int) -> list[int]:
    lines = proc.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(controller)], timeout_s=END_TIMEOUT_S, check=False
    )
    pids = [int(line.split()[0]) for line in lines.stdout.splitlines() if "-c" in line.split()]
    return pids if len(pids) == count else []


def _run(ground: Ground, *options: str) -> list[str]:
    scenario = ground.folder / "test_small.py"
    scenario.write_text(SMALL_SCENARIO)
    return [sys.executable, "-m", "nodeproof.cli", "run", "--no-site", *options, str(scenario)]


def _pid_of(part: str, host: leftovers.Footprint) -> int:
    """Return the process of a part.

    Below the supervisor are `unshare`, the lab's first process, its server.
    """
    if part == "supervisor":
        return host.supervisor
    first = leftovers.child_of(host.init)
    return first if part == "init" else leftovers.child_of(first)


def _quiet(_line: str) -> None:
    """Drop the progress of a lab that comes up again and again."""


if __name__ == "__main__":
    sys.exit(main())
