"""One pytest process and its run, from options and plan to the results, and the lab once it is needed."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import pytest

from nodeproof import catalogue, terminal
from nodeproof.cache import Detail, ProgressLine
from nodeproof.capacity import busy_share
from nodeproof.existing.power import DRIVERS
from nodeproof.faults import plugin_errors
from nodeproof.labs.base.profiles import profile_named
from nodeproof.labs.client import registry
from nodeproof.labs.client.starting import raise_priority
from nodeproof.labs.kinds import KINDS
from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.overrides import Overrides
from nodeproof.model.pattern import Json
from nodeproof.model.plan import Shard, Size, WorkerPlan, initial, pack, parse_shard, shares
from nodeproof.model.problem import OutsideError, Problem, printable
from nodeproof.report import allure, digest, rundir, tables
from nodeproof.report.plain import counted, duration, wrapped
from nodeproof.report.rundir import DIED
from nodeproof.safety.ledger import Ledger
from nodeproof.safety.shield import SIGNALS, interrupt_once
from nodeproof.scenario.probes import PROBES
from nodeproof.session import (
    markers,
    output_folder,
    planning,
    scenario_report,
    sharing,
    storm,
    usage_errors,
)
from nodeproof.session.judging import without_running
from nodeproof.session.options import Options, dry_run, options_of, workers
from nodeproof.session.planning import DurationRecorder
from nodeproof.session.progress import DISPLAY, LiveDisplay, Notifier, ProgressWriter
from nodeproof.session.provider import LabOpener, LabProvider
from nodeproof.session.sharing import Retries, Throttle

COMMON_SIZE = Size(nodes=2, zones=1)
_SAMPLE_S = 1.0
"""Time (s) for which the machine's load is sampled before a run."""
_BUSY_SHARE = 0.2
"""CPU share used by other programs above which a run prints a warning."""


@dataclass
class Session:
    """The run of one pytest process; `provider` is created with the first scenario."""

    options: Options
    claims: dict[str, Claim]
    run_folder: Path
    started_at: datetime
    command: str
    is_worker: bool
    say: Callable[[str], None]
    durations_s: Mapping[str, float]
    """Durations (s) of scenarios in earlier runs."""
    throttle: Throttle
    retries: Retries
    recorder: DurationRecorder
    """Measures the durations of this run, in the process that receives all reports."""
    notifier: Notifier
    worker_plans: tuple[WorkerPlan, ...] = ()
    size: Size = COMMON_SIZE
    """Size of a lab, or of a zone of the shared lab, for scenarios that need no dedicated lab size."""
    zones_shared: int = 0
    """Number of zones in the shared lab; 0 if there is none."""
    shard: Shard | None = None
    """This run's shard, with the contents of all shards; None if the run is not sharded."""
    shard_durations_s: tuple[float, ...] = ()
    """Expected duration (s) of each shard with one worker."""
    provider: LabProvider | None = None
    progress: ProgressWriter | None = None
    """Reports this process's progress; None if no terminal shows it."""

    @property
    def start_s(self) -> float:
        """Expected duration (s) of a lab start; 0 on a running lab."""
        return planning.start_s(self.options, self.durations_s) if self.options.starts_lab else 0.0

    def is_alone(self, nodeid: str) -> bool:
        """Return whether the scenario has a dedicated lab."""
        return self._plan_with_own_lab(nodeid) is not None

    def shares_later(self, nodeid: str) -> bool:
        """Return whether the scenario has a dedicated lab, and its worker later needs a shared zone."""
        worker_plan = self._plan_with_own_lab(nodeid)
        return worker_plan is not None and shares(worker_plan, self.worker_plans)

    def _plan_with_own_lab(self, nodeid: str) -> WorkerPlan | None:
        for worker_plan in self.worker_plans:
            if any(scenario.scenario == nodeid and scenario.is_alone for scenario in worker_plan.scenarios):
                return worker_plan
        return None

    def lab_provider(self) -> LabProvider:
        """Return the provider of this process's labs, created at the first call."""
        if self.provider is None:
            if self.is_worker:
                raise_priority()
            workers = planning.in_use(self.worker_plans) if self.options.starts_lab else 0
            opener = LabOpener(
                self.options, self.run_folder, self.size, self.zones_shared, workers,
                self.throttle, self.say, self.notifier.send_fault,
            )  # fmt: skip
            self.provider = LabProvider(opener, self.throttle, self.retries, self.say)
        return self.provider

    def abort(self, reason: str) -> NoReturn:
        """Abort the session with exit code 2; xdist workers pass the reason to the controller in a file."""
        reason = printable(redact.text(reason))
        (self.run_folder / rundir.BROKEN_OFF).write_text(reason)
        self.say(reason)
        pytest.exit(f"nodeproof: {reason}", returncode=2)


SESSION = pytest.StashKey[Session]()


def session_of(config: pytest.Config) -> Session:
    """Return this process's session, which `scenario_run.begin` created."""
    return config.stash[SESSION]


def create(config: pytest.Config, folder: Path | None) -> Session:
    """Return a new session of this process; its run is stored in `folder`, by default in a new one.

    Raises:
        Problem: An option, a claim or a file of durations is invalid, or the folder has a run.
    """
    options, worker, only_collects = options_of(config), _worker_of(config), config.option.collectonly
    if config.getoption("shard"):
        parse_shard(config.getoption("shard"))
    claims = dict(catalogue.load(config.getini("nodeproof_claims")))
    for claim in options.claims:
        catalogue.find_judged(claim, claims)
    run_folder = folder or _run_folder(config, options)
    if "nodeproof_durations_s" in worker:
        durations_s = worker["nodeproof_durations_s"]
    else:
        # `--times FILE` has the durations to plan with.
        durations_s = planning.durations(config.getoption("times"), output_folder(config), options)
    progress, recorder = _progress_of(config, run_folder), DurationRecorder()
    say = _printer(config, progress if worker else config.stash.get(DISPLAY, None))
    if not worker:
        config.pluginmanager.register(recorder)
        for message in (*plugin_errors(), *KINDS.errors, *PROBES.errors, *DRIVERS.errors):
            say(message)
    if worker and options.starts_lab:
        options = replace(options, overrides=Overrides.from_json(worker.get("nodeproof_overrides", {})))
    elif not only_collects:
        options = dry_run(options, say)
    name, shared = worker.get("workerid", "run"), run_folder / sharing.FOLDER
    return Session(
        options=options,
        claims=claims,
        run_folder=run_folder,
        started_at=datetime.now(UTC),
        command=" ".join(["pytest", *config.invocation_params.args]),
        is_worker=bool(worker),
        say=say,
        durations_s=durations_s,
        throttle=Throttle(shared, name, workers(config)),
        retries=Retries(shared),
        recorder=recorder,
        notifier=Notifier("" if only_collects else config.getoption("notify"), run_folder.name, say),
        progress=progress,
    )


def _worker_of(config: pytest.Config) -> Mapping[str, Any]:
    """Return what xdist's controller told this worker; empty in another process."""
    worker: Mapping[str, Any] = getattr(config, "workerinput", {})
    return worker


def _run_folder(config: pytest.Config, options: Options) -> Path:
    """Return the folder of the controller's run, or of the option `--run`, else a new one. Raises Problem."""
    if worker := _worker_of(config):
        return Path(worker["nodeproof_run"])
    if not config.getoption("run"):
        return rundir.new_folder(output_folder(config), options.profile_name, options.kind)
    run_folder = Path(config.getoption("run"))
    if not config.option.collectonly:
        rundir.refuse_inside(run_folder, "no run can begin here")
    return run_folder


def worker_input(config: pytest.Config, session: Session) -> Mapping[str, object]:
    """Return what the workers of a run need to know of it: they must compute the same plan."""
    return {
        "nodeproof_run": str(session.run_folder),
        "nodeproof_overrides": asdict(session.options.overrides),
        "nodeproof_checkout": asdict(checkout) if (checkout := session.options.checkout) else None,
        "nodeproof_durations_s": dict(session.durations_s),
        "nodeproof_planned": is_planned(config),
        "nodeproof_shows_progress": session.progress is not None,
    }


def handle_signals(config: pytest.Config) -> None:
    """Let SIGTERM and SIGHUP end this session like Ctrl-C, and ignore further signals during cleanup."""
    before = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, previous in before.items():
            signal.signal(number, previous or signal.SIG_DFL)

    config.add_cleanup(restore)
    handler = interrupt_once(lambda: report_shutdown(config))
    for number in SIGNALS:
        signal.signal(number, handler)


def _progress_of(config: pytest.Config, run: Path) -> ProgressWriter | None:
    """Return the writer of this process's progress, or None if no terminal shows it."""
    worker = _worker_of(config)
    if worker:
        return ProgressWriter(run, worker["workerid"]) if worker.get("nodeproof_shows_progress") else None
    display = config.stash.get(DISPLAY, None)
    return display.follow(run) if display is not None else None


def is_scenario(item: pytest.Item) -> bool:
    """Return whether a test declares claims, in its source or by its marker."""
    return item.get_closest_marker("claims") is not None


def prepare(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Select and order the scenarios by the options, and create the run unless pytest only collects.

    Raises:
        pytest.UsageError: A claim is not in the catalogue, or a marker or an option is invalid.
    """
    with usage_errors():
        deselect(config, items, storm.others(config, items))
        scenarios = list(filter(is_scenario, items))
        for item in scenarios:
            for claim in markers.declared(item):
                catalogue.find_judged(claim, session.claims)
            markers.check(item)
        if session.options.claims:
            selected = set(session.options.claims)
            others = {item for item in scenarios if not selected.intersection(markers.declared(item))}
            deselect(config, items, others)
        if config.getoption("shard") and scenarios:
            keep_shard(config, session, items)
    if not any(map(markers.declared, items)):
        return
    plan_for(config, session, items)
    if not config.option.collectonly:
        open_run(config, session, items)


def plan_for(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Determine the size of the labs, and plan the scenarios of each worker."""
    scenarios = list(filter(is_scenario, items))
    options, shared = session.options, is_planned(config) and _may_share(session.options)
    session.size = markers.common_size(map(markers.needs, scenarios), options)
    expected = [planning.estimate(item, options, session.durations_s, session.size) for item in scenarios]
    if not shared:
        expected = [replace(scenario, is_alone=False) for scenario in expected]
    start_s = planning.start_s(options, session.durations_s)
    session.worker_plans = pack(expected, workers(config) or 1, start_s)
    session.zones_shared = planning.zones(session.worker_plans, options, session.size) if shared else 0
    if is_planned(config):
        items[:] = planning.in_order(items, session.worker_plans)
        return
    # Another lab size costs a lab start, and a standing fault costs an injection, so group equal needs.
    # With scenarios that wait for no fault at the end, all workers finish together.
    needs = {item: markers.needs(item) for item in scenarios}
    large = (item for item in scenarios if markers.is_large(needs[item], options))
    sizes = {item: markers.size(needs[item], options) for item in large}
    standing_keys = {item: markers.key(markers.standing(item)) for item in scenarios}

    def order(item: pytest.Item) -> tuple[bool, Size, str, bool]:
        size = sizes.get(item, session.size)
        return item in sizes, size, standing_keys.get(item, ""), not needs[item].faulted

    items.sort(key=order)
    if len(session.worker_plans) == 1:
        session.worker_plans = planning.in_item_order(items, session.worker_plans[0])


def deselect(config: pytest.Config, items: list[pytest.Item], deselected: Collection[pytest.Item]) -> None:
    """Remove items from those that pytest will run."""
    if deselected:
        config.hook.pytest_deselected(items=[item for item in items if item in deselected])
        items[:] = [item for item in items if item not in deselected]


def keep_shard(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Deselect the scenarios of other shards; tests without claims belong to the first shard.

    Durations of this machine's own runs are ignored: each machine would divide the scenarios differently.

    Raises:
        Problem: A shard would have nothing to run.
    """
    number, shard_count = parse_shard(config.getoption("shard"))
    scenarios = list(filter(is_scenario, items))
    durations_s = session.durations_s if config.getoption("times") else planning.shipped(session.options)
    shards = planning.shards(scenarios, session.options, shard_count, durations_s)
    own_nodeids = {expected.scenario for expected in shards[number - 1]}
    if not all(shards):
        raise Problem(
            f"{shard_count} shards of {len(scenarios)} scenarios: some would have nothing to run", "--shard",
            f"use at most {len(scenarios)} shards",
        )  # fmt: skip
    claims = _declared_claims(items)
    parts = tuple(
        {expected.scenario: tuple(claims[expected.scenario]) for expected in shard} for shard in shards
    )
    options = session.options
    identity = (options.kind, options.profile, options.kubernetes_version, session.started_at.isoformat())
    session.shard = Shard(number, *identity, options.claims, parts, options.overrides.texts)
    session.shard_durations_s = tuple(sum(expected.duration_s for expected in shard) for shard in shards)
    other_items = {
        item for item in items if item.nodeid not in own_nodeids and (item in scenarios or number > 1)
    }
    deselect(config, items, other_items)


def describe_plan(config: pytest.Config) -> Iterator[str]:
    """Yield the plan of a session as text; nothing without scenarios. Raises Problem."""
    session = config.stash.get(SESSION, None)
    if session is None or not session.worker_plans:
        return
    if len(session.worker_plans) > 1 and not is_planned(config):
        raise Problem("xdist schedules the scenarios without a plan", "--dist", "leave it out")
    if session.shard is not None:
        yield planning.describe_shard(session.shard, session.shard_durations_s)
    yield from planning.describe(
        session.worker_plans, session.options, session.start_s, session.size, session.zones_shared
    )


def _scope(session: Session, items: Sequence[pytest.Item]) -> str:
    """Return how many scenarios run on somebody's own cluster, how many of them with faults, and how long."""
    estimates = [estimate for plan in session.worker_plans for estimate in plan.scenarios]
    running = {estimate.scenario for estimate in estimates if estimate.runs_here}
    faulted = [item for item in items if item.nodeid in running and markers.needs(item).faulted]
    took = duration(sum(estimate.duration_s for estimate in estimates))
    return (
        f"{len(running)} of {counted(len(estimates), 'scenario')} can run on this cluster, "
        f"{len(faulted)} with faults: about {took} if it is not busy"
    )


def _may_share(options: Options) -> bool:
    """Return whether workers may use zones of one lab: no option fixes the lab, its nodes or its zones."""
    has_default_size = options.starts_lab and not options.nodes and not options.zones
    return has_default_size and options.lab_kind.limits.zones_per_core > 0


def open_run(config: pytest.Config, session: Session, items: Sequence[pytest.Item]) -> None:
    """Create the run's folder, write the plan, and let Allure write its results there."""
    rundir.create(session.run_folder)
    rundir.write_json(session.run_folder / rundir.DECLARED, _declared_claims(items))
    if session.shard is not None:
        # `nodeproof merge` needs to know what should run here, even if this run is aborted.
        rundir.write_shard(session.run_folder, session.shard)
    if len(session.worker_plans) == 1 or is_planned(config):
        planning.write(session.run_folder, session.worker_plans, session.start_s)
    if session.options.lab_kind.is_attached:
        session.say(_scope(session, items))
    if not config.getoption("allure_report_dir", default=None):
        allure = config.pluginmanager.get_plugin("allure_pytest")
        if allure is not None:
            config.option.allure_report_dir = str(session.run_folder / "allure-results")
            allure.pytest_configure(config)
    if config.getoption("allure_report_dir", default=None):
        scenario_report.redact_allure(config)


def _declared_claims(items: Sequence[pytest.Item]) -> Mapping[str, Sequence[str]]:
    """Return the declared claims of each scenario."""
    return {item.nodeid: claims for item in items if (claims := markers.declared(item))}


def is_planned(config: pytest.Config) -> bool:
    """Return whether xdist schedules scenarios by the plan: in `nodeproof run`, unless --dist is given."""
    if worker := _worker_of(config):
        return bool(worker.get("nodeproof_planned"))
    return bool(config.getoption("shipped")) and config.getoption("dist", "no") == "load"


def check_load(session: Session, max_workers: int) -> None:
    """Sample the machine's load before the run, set the initial number of workers, and warn of load."""
    share = busy_share(_SAMPLE_S)
    sharing.allow(session.run_folder / sharing.FOLDER, initial(max_workers, share))
    if share > _BUSY_SHARE:
        session.say(
            f"this machine is busy: other programs use {share * 100:.0f} % of its processors; "
            f"the run may take up to {1 / max(1 / max_workers, 1 - share):.1f} times as long"
        )


def report_shutdown(config: pytest.Config) -> None:
    """Print after a second Ctrl-C that the shutdown continues, and the active faults."""
    session = config.stash.get(SESSION, None)
    if session is None:
        return
    session.say("shutting down cleanly, please wait")
    if session.provider is not None and session.provider.lab is not None:
        session.provider.lab.handle.safety.injector.print_active()


def _printer(config: pytest.Config, display: ProgressWriter | LiveDisplay | None) -> Callable[[str], None]:
    """Return a function that prints a line at once.

    It prints above the progress display if there is one, else on standard error, bypassing pytest's capture.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    shows_details = not config.getoption("shipped") or config.option.verbose > 0

    def say(message: str) -> None:
        if isinstance(message, ProgressLine) and not message.is_milestone:
            return
        line = redact.text(message)
        if display is not None and display.say(line):
            return
        if isinstance(message, Detail) and not shows_details:
            return
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            terminal.say(line)

    return say


_MAX_NAMES_LENGTH = 300
"""Characters to print of the claims without a verdict."""


def store_crashed(session: Session, nodeid: str) -> None:
    """Store an unproven verdict for every declared claim of a scenario whose worker died.

    It gets its own name. A test that is not a scenario has none.
    """
    claims = (rundir.read_declared(session.run_folder) or {}).get(nodeid)
    if not claims:
        return
    died_as, reason = f"{nodeid}{DIED}", "the worker that ran the scenario died"
    with contextlib.suppress(OSError):
        rundir.scenario_dir(session.run_folder, nodeid).rename(
            rundir.scenario_dir(session.run_folder, died_as)
        )
    declared = [session.claims[claim] for claim in claims]
    judged = without_running(declared, "gap", reason)
    scenario_report.store_skipped(session.run_folder, died_as, judged, session.claims, session.options)
    allure.write_broken(session.run_folder, died_as, claims, reason, session.claims)


def write_results(session: Session) -> None:
    """Tear down labs that outlived their worker, and write the run's facts, verdicts and times."""
    run = session.run_folder
    orphaned_labs = _tear_down_labs(session)
    if orphaned_labs:
        session.say(f"stopped labs of dead workers: {', '.join(orphaned_labs)}")
    for line in _heal_zones(session):
        session.say(line)
    shutil.rmtree(run / sharing.FOLDER, ignore_errors=True)
    scenarios = rundir.read_declared(run) or {}
    durations_s = dict(session.recorder.durations(scenarios))
    if not session.options.starts_lab:
        durations_s.pop(planning.START, None)
    with contextlib.suppress(OSError):
        planning.write_times(run, durations_s)
    _write_run(session, {claim for claims in scenarios.values() for claim in claims})
    # A run that was aborted before any verdict has no table.
    with contextlib.suppress(Problem, OSError):
        stored = digest.read(run, {})
        (run / tables.TABLE_FILE).write_text(f"{tables.render(stored, str(run), stored.since)}\n")


def _heal_zones(session: Session) -> Iterator[str]:
    """Heal the zones of killed workers in a lab that the run attached to; yield a line for each failure."""
    lab = session.options.lab
    if not session.options.zone:
        return
    leased = {
        path.stem.removeprefix(f"{lab}-") for path in (session.run_folder / "labs").glob(f"{lab}-*.json")
    }
    for zone in sorted(leased & {entry.lease for entry in Ledger(lab).unfinished()}):
        try:
            registry.heal(lab, zone)
        except Problem as problem:
            yield f"zone {zone} of lab {lab}: {problem}; run `nodeproof heal`"


def _tear_down_labs(session: Session) -> list[str]:
    """Tear down the labs that this run started and that outlived their worker; return their names."""
    if not session.options.starts_lab:
        return []
    labs = session.run_folder / "labs"
    own = {path.name for path in labs.glob("*") if path.is_dir()}
    orphaned = sorted(own & set(registry.running()))
    for name in orphaned:
        # The worker that would have kept the logs has died.
        with (
            contextlib.suppress(Problem, OutsideError, OSError),
            contextlib.closing(registry.attach(name)) as lab,
        ):
            lab.copy_logs(labs)
        registry.down(name)
    sharing.remove_locks(labs)
    return orphaned


def _write_run(session: Session, selected: Set[str]) -> None:
    """Merge the workers' verdicts, and write the run's facts."""
    run, options = session.run_folder, session.options
    rundir.create(run)
    rundir.merge_verdicts(run)
    shard = rundir.read_shard(run)
    labs = [rundir.read_json(path) for path in sorted((run / "labs").glob("*.json"))]
    kubelets = {(node, version) for lab in labs for node, version in lab.get("node_versions", {}).items()}
    facts = rundir.RunFacts(
        run=run.name,
        began=session.started_at.isoformat(),
        ended=datetime.now(UTC).isoformat(),
        lab=options.kind,
        profile=options.profile,
        kubernetes_version=labs[0]["kubernetes_version"] if labs else options.kubernetes_version,
        command=session.command,
        components=labs[0]["components"] if labs else {},
        settings=(
            *options.lab_kind.settings(profile_named(options.profile), options.overrides),
            *(f"kubelet of {node}: {version}" for node, version in sorted(kubelets)),
        ),
        overrides=options.overrides.texts,
        quarantined=tuple(sorted({node for lab in labs for node in lab.get("quarantined", ())})),
        selected=tuple(sorted(selected)),
        exit_reason=rundir.read_part(run, rundir.BROKEN_OFF),
        shard=shard.to_json() if shard else None,
    )
    rundir.write_facts(run, facts)
    rundir.point_latest(run.parent, run)


def end_facts(run: Path) -> Mapping[str, Json]:
    """Return the number of claims in each state and why the run was aborted; nothing without a run."""
    if not (run / rundir.RUN).is_file():
        return {}
    rows = digest.worst_by_claim(rundir.read_verdicts(run)).values()
    return {"claims": Counter(map(digest.state_of, rows)), "exit_reason": rundir.read_facts(run).exit_reason}


def whole_table(run: Path) -> Iterator[str]:
    """Yield the lines of the table of all claims."""
    yield from [*rundir.read_part(run, tables.TABLE_FILE).splitlines(), ""]


def settings(run: Path) -> Iterator[str]:
    """Yield the settings of the run's lab that differ from upstream's defaults."""
    yield "settings of the lab that are not upstream's:"
    yield from [*(f"  {setting}" for setting in rundir.read_facts(run).settings), ""]


def closing_lines(run: Path) -> Iterator[str]:
    """Yield the last lines of a run: deviating and open claims, remarks, and the counts."""
    facts, rows = rundir.read_facts(run), rundir.read_verdicts(run)
    *claims, totals = tables.last_lines(digest.read(run, {}), digest.named_claims(facts))
    yield from claims
    yield from _busiest_processes(run, rows)
    if facts.quarantined:
        yield f"not proven healed or Ready: {', '.join(facts.quarantined)}"
    unjudged = sorted(set(facts.selected) - {row["claim"] for row in rows})
    if unjudged:
        yield f"{counted(len(unjudged), 'selected claim')} without a verdict:"
        yield from wrapped(", ".join(unjudged), _MAX_NAMES_LENGTH)
    if facts.exit_reason:
        yield f"nodeproof: {facts.exit_reason}"
    yield totals
    yield from _retried(run)
    yield planning.compare(run, facts.duration_s)
    changed = f"{counted(len(facts.settings), 'setting')} other than upstream's: --settings (run.json)"
    yield f"table of all claims: --table ({tables.TABLE_FILE}); {changed}"
    yield f"run folder: {run}"


def _retried(run: Path) -> Iterator[str]:
    """Yield a line with the number of retried scenarios, and of their tries before the last one."""
    tries = [path.name.rpartition("-")[0] for path in (run / rundir.TOO_LOADED).glob("*")]
    if tries:
        scenarios, earlier = counted(len(set(tries)), "scenario"), counted(len(tries), "try", "tries")
        reason = "the host was too loaded or a watch broke"
        yield f"retried because {reason}: {scenarios} ({earlier} before the last one)"


def _busiest_processes(run: Path, rows: Sequence[rundir.Row]) -> Iterator[str]:
    """Yield the processes that used the processors while a scenario stayed open, and the next step."""
    if not (run / rundir.BUSIEST).exists() or not any(row["code"] == "host-too-loaded" for row in rows):
        return
    processes = rundir.read_json(run / rundir.BUSIEST)
    yield "the host was too loaded even for one scenario alone; busiest processes of other programs:"
    yield from (f"  {process}" for process in processes or ["none: give the machine more processors"])
    yield "next step: end them, or run the open claims again with `nodeproof run --claim ID`"
