"""Kills of random processes at random moments of random faults.

Run `python -m tests.soak --rounds N --seed S [--part PART]`. After each kill, `nodeproof heal` runs, and the
lab's state is compared with that before the fault. A round's seed is printed; `--seed S-K`
repeats it.
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

RESTORED_TIMEOUT_S = {PROCESS.name: 60.0, LIBVIRT.name: 180.0}
"""A powered-off node boots, becomes Ready, and loses its taints."""
RUN_ENDS_TIMEOUT_S = 180.0
END_TIMEOUT_S = 60.0
MIN_HARMED_SHARE = 0.5
"""Least share of rounds with a fault that are killed during its injection or later."""
FIRST_STEP_TIMEOUT_S = 60.0
FIRST_STEP_SHARE = 0.8
"""Share of rounds that are killed some time after the fault's first step; others, after Python's start."""
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
"""Workers, scenarios, and options by which each worker has a lab or a zone."""


class Difference(Exception):
    """The state differs from that before the round."""


@dataclass
class Rounds:
    """The rounds' lab, which lives until a round kills it, and the steps that their faults reached."""

    kind: str
    folder: Path
    lab: LabHandle | None = None
    reached: list[str] = field(default_factory=list)
    """The last step of each fault before the kill; empty before its first step."""

    def ready(self) -> LabHandle:
        """Return the kept lab, a new one if there is none."""
        if self.lab is None:
            request = starting.LabRequest(starting.new_name(), 2, 1, "fast", True, self.kind)
            self.lab = starting.up(request, obtain("build", DEFAULT_KUBERNETES_VERSION, _quiet), _quiet)
            self.lab.prepare()
        self.lab.wait_nodes_ready()
        return self.lab

    def forget(self) -> None:
        """Close the lab that a round killed."""
        if self.lab is not None:
            self.lab.close()
        self.lab = None

    def down(self) -> None:
        """Remove the lab."""
        if self.lab is not None:
            self.lab.down()
        self.lab = None


def main() -> int:
    """Run the rounds; return 1 at the first one that leaves something or does not heal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--lab", default=PROCESS.name, choices=KINDS)
    parser.add_argument("--part", choices=WEIGHTS, help="kill only this, in every round")
    arguments = parser.parse_args()
    is_single = "-" in arguments.seed
    seeds = (
        [arguments.seed]
        if is_single
        else [f"{arguments.seed}-{number}" for number in range(arguments.rounds)]
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        # The rounds' ledgers stay out of the user's state folder.
        os.environ["XDG_STATE_HOME"] = folder
        rounds = Rounds(arguments.lab, Path(folder))
        try:
            for seed in seeds:
                _round(rounds, seed, arguments.part)
        except Difference as difference:
            print(f"soak: round {seed}: {difference}", flush=True)
            return 1
        finally:
            rounds.down()
    print(f"soak: {len(seeds)} rounds, nothing was left", flush=True)
    return 0 if is_single or arguments.part else _check_harm(rounds.reached)


def _check_harm(reached: list[str]) -> int:
    """Return 1 if too many rounds were killed before they injected a fault: these prove little."""
    harmed = [step for step in reached if step not in ("", "planned", "armed")]
    print(
        f"soak: {len(harmed)} of {len(reached)} rounds with a fault ended during its injection or later",
        flush=True,
    )
    return 0 if len(harmed) >= MIN_HARMED_SHARE * len(reached) else 1


def _round(rounds: Rounds, seed: str, chosen_part: str | None) -> None:
    rng = random.Random(seed)  # noqa: S311  no secret depends on it
    random_part = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    part = chosen_part or random_part
    if rounds.kind == LIBVIRT.name and part in WORKERS:
        part = "pytest"
    began = time.monotonic()
    text = (_kill_in_run if part in WORKERS else _kill_on_kept_lab)(rounds, part, rng)
    print(f"soak: round {seed}: {part}: {text}, {time.monotonic() - began:.1f} s in all", flush=True)


def _kill_on_kept_lab(rounds: Rounds, part: str, rng: random.Random) -> str:
    lab = rounds.ready()
    before, host = snapshot(lab), leftovers.footprint(lab.name)
    name, node = rng.choice(sorted(FAULTS)), rng.choice(lab.fleet.node_names())
    fault = FAULTS[name](node)
    while fault.available(lab.fleet.machine(node)):
        name = rng.choice(sorted(FAULTS))
        fault = FAULTS[name](node)
    after_s = rng.uniform(0.0, 25.0 if part == "pytest" else 4.0)
    text = f"{name} on {node}, killed after {after_s:.1f} s"
    argv = [sys.executable, "-m", "tests.contract.victim", lab.name, json.dumps(fault.to_json()), HOLD]
    if part == "pytest":
        argv = _run(rounds, "--lab", lab.name)
        text = f"a whole run, killed after {after_s:.1f} s"
    child = proc.start(argv, log=rounds.folder / "log", cwd=TOP if part != "pytest" else rounds.folder)
    if part != "pytest" and rng.random() < FIRST_STEP_SHARE:
        eventually(lambda: _step(lab), FIRST_STEP_TIMEOUT_S)
    pause(after_s)
    step = _step(lab)
    if part != "pytest":
        rounds.reached.append(step)
    text += f" at step {step or 'none'}"
    if part in LAB_PARTS:
        leftovers.kill(_pid_of(part, host))
    child.kill()
    child.wait(timeout=END_TIMEOUT_S)
    if part == "heal":
        text += f", its heal {_kill_heal(rounds, lab, rng):.1f} s after its start"
    if part in LAB_PARTS:
        return text + _check_removed(rounds, host)
    return text + _check_healed(rounds, lab, before)


def _step(lab: LabHandle) -> str:
    """Return the last step in the ledger, empty if nothing is open."""
    unfinished = lab.safety.ledger.unfinished()
    return unfinished[-1].step if unfinished else ""


def _kill_heal(rounds: Rounds, lab: LabHandle, rng: random.Random) -> float:
    argv = [sys.executable, "-m", "nodeproof.cli", "heal", "--lab-name", lab.name]
    child = proc.start(argv, log=rounds.folder / "log", cwd=rounds.folder)
    after_s = rng.uniform(0.0, 3.0)
    pause(after_s)
    child.kill()
    child.wait(timeout=END_TIMEOUT_S)
    return after_s


def _check_healed(rounds: Rounds, lab: LabHandle, before: list[str]) -> str:
    """Heal, and compare the states, after powered-off nodes had time to become Ready."""
    began = time.monotonic()
    process = nodeproof("heal", "--lab-name", lab.name, cwd=rounds.folder)
    took_s = time.monotonic() - began
    if process.status != 0:
        raise Difference(f"heal: {process.stderr.strip()}")
    if not eventually(lambda: snapshot(lab) == before, RESTORED_TIMEOUT_S[rounds.kind]):
        raise Difference("\n".join(difflib.unified_diff(before, snapshot(lab), "before", "after", n=0)))
    return f", healed in {took_s:.1f} s"


def _check_removed(rounds: Rounds, host: leftovers.Footprint) -> str:
    """Check that the lab ends without the killed process, and is swept."""
    rounds.forget()
    began = time.monotonic()
    if not eventually(lambda: host.lab not in registry.running(), END_TIMEOUT_S):
        raise Difference(f"lab {host.lab} still runs")
    registry.sweep()
    left = leftovers.leftovers(host)
    ledger = list((rounds.folder / "nodeproof" / "ledger").glob(f"{host.lab}*"))
    if left or ledger:
        raise Difference(f"left: {left} {ledger}")
    return f", removed in {time.monotonic() - began:.1f} s"


def _kill_in_run(rounds: Rounds, part: str, rng: random.Random) -> str:
    """Kill a worker of a run, or the controller, at a random moment."""
    count, scenarios, options = WORKERS[part]
    folder = Path(tempfile.mkdtemp(dir=rounds.folder))
    tables = leftovers.host_tables()
    others = [folder / f"test_{number}.py" for number in range(1, scenarios)]
    for other in others:
        other.write_text(SMALL_SCENARIO)
    argv = _run(Rounds(rounds.kind, folder), "-n", str(count), *options, *map(str, others))
    child = proc.start(argv, log=folder / "log", cwd=folder)
    run = eventually(lambda: the_run(folder), END_TIMEOUT_S)
    running = eventually(lambda: _workers(child.pid, count), END_TIMEOUT_S)
    after_s = rng.uniform(0.0, 40.0)
    pause(after_s)
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid if part == "controller" else rng.choice(running), signal.SIGKILL)
    assert run is not None
    if part == "controller":
        return _check_all_ended(run, running, tables) + f", killed after {after_s:.1f} s"
    return _check_others_continue(child, folder, run, tables) + f", killed after {after_s:.1f} s"


def _check_all_ended(run: Path, workers: Sequence[int], tables: str) -> str:
    """Check that workers end after their controller, and their lab after the last worker."""
    began = time.monotonic()
    if not eventually(lambda: not any(map(_is_alive, workers)), RUN_ENDS_TIMEOUT_S):
        raise Difference(f"workers live: {list(filter(_is_alive, workers))}")
    if not eventually(lambda: not set(labs_of(run)) & set(registry.running()), END_TIMEOUT_S):
        raise Difference(f"labs run: {set(labs_of(run)) & set(registry.running())}")
    registry.sweep()
    _check_nothing_left(run, tables)
    return f"all ended in {time.monotonic() - began:.1f} s"


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    return False


def _check_others_continue(child: proc.Process, folder: Path, run: Path, tables: str) -> str:
    """Check that other workers finish the run and judge their scenarios."""
    try:
        status = child.wait(timeout=RUN_ENDS_TIMEOUT_S)
    except proc.TimeoutExpired as error:
        child.kill()
        raise Difference(f"the run hangs: {(folder / 'log').read_text()[-2000:]}") from error
    _check_nothing_left(run, tables)
    unproven = [row for row in rundir.read_verdicts(run) if row["code"]]
    unexpected = [row for row in unproven if not str(row["scenario"]).endswith("(its worker died)")]
    if unexpected:
        raise Difference(
            f"verdicts beside a killed worker: {[(row['code'], row['reason']) for row in unexpected]}"
        )
    return f"the run ended with {status}"


def _check_nothing_left(run: Path, tables: str) -> None:
    left = [line for lab in labs_of(run) for line in leftovers.leftovers_of(lab, tables)]
    if left:
        raise Difference(f"the run left {left}")


def _workers(controller: int, count: int) -> list[int]:
    lines = proc.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(controller)], timeout_s=END_TIMEOUT_S, check=False
    )
    pids = [int(line.split()[0]) for line in lines.stdout.splitlines() if "-c" in line.split()]
    return pids if len(pids) == count else []


def _run(rounds: Rounds, *options: str) -> list[str]:
    scenario = rounds.folder / "test_small.py"
    scenario.write_text(SMALL_SCENARIO)
    return [sys.executable, "-m", "nodeproof.cli", "run", "--no-site", *options, str(scenario)]


def _pid_of(part: str, host: leftovers.Footprint) -> int:
    """Return the process of a part: below the supervisor are `unshare`, the lab's init and its server."""
    if part == "supervisor":
        return host.supervisor
    first = leftovers.child_of(host.init)
    return first if part == "init" else leftovers.child_of(first)


def _quiet(_line: str) -> None:
    """Drop the progress of a lab's start."""


if __name__ == "__main__":
    sys.exit(main())
