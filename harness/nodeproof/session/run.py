"""One pytest process and its run: options, folder and plan of the run, and the lab once it is needed.

Every pytest in the same environment loads it, so it imports what a run needs only during a run.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from nodeproof import catalogue, terminal
from nodeproof.kept import Counted, Detail
from nodeproof.model import redact
from nodeproof.model.claim import Claim
from nodeproof.model.plan import Size, Slot, shares
from nodeproof.model.printable import printable
from nodeproof.model.problem import Problem
from nodeproof.model.shard import Shard, parse
from nodeproof.safety.shield import interrupt_once
from nodeproof.session import asked

if TYPE_CHECKING:
    from nodeproof.session.admission import Admission
    from nodeproof.session.live import Live
    from nodeproof.session.options import Options
    from nodeproof.session.running import LabProvider
    from nodeproof.session.telling import Telling

SELECTED = "selected-claims"
_SAMPLE_S = 1.0
"""Time (s) for which the machine's load is sampled before a run."""
_BUSY = 0.2
"""Share of the processors used by other programs above which a run warns of it."""


@dataclass
class Session:
    """The run of one pytest process; `provider` is created with the first scenario."""

    options: Options
    claims: dict[str, Claim]
    run: Path
    began: datetime
    command: str
    is_worker: bool
    say: Callable[[str], None]
    durations_s: Mapping[str, float]
    """Durations (s) of scenarios in earlier runs."""
    admission: Admission
    selected: set[str] = field(default_factory=set)
    slots: tuple[Slot, ...] = ()
    size: Size = field(default_factory=lambda: Size(2, 1))
    """Size of a lab, or of a zone of the shared lab, for scenarios without a lab size of their own."""
    zones_shared: int = 0
    """Number of zones in the shared lab; 0 if there is none."""
    shard: Shard | None = None
    """This run's shard, with the contents of all shards; None if the run is not sharded."""
    shards_last_s: tuple[float, ...] = ()
    """Expected duration (s) of each shard in one slot."""
    provider: LabProvider | None = None
    put_off: list[pytest.Item] = field(default_factory=list)
    """Scenarios that are retried at the end."""
    telling: Telling | None = None
    """Reports this process's progress; None if no terminal shows it."""

    def is_alone(self, nodeid: str) -> bool:
        """Return whether the scenario has a lab to itself."""
        planned = (scenario for slot in self.slots for scenario in slot.scenarios)
        return any(scenario.is_alone for scenario in planned if scenario.scenario == nodeid)

    def shares_later(self, nodeid: str) -> bool:
        """Return whether the scenario has a lab to itself, and its slot later needs a shared zone."""
        for slot in self.slots:
            if any(scenario.scenario == nodeid and scenario.is_alone for scenario in slot.scenarios):
                return shares(slot, self.slots)
        return False


SESSION = pytest.StashKey[Session]()
LIVE = pytest.StashKey["Live"]()


def session_of(config: pytest.Config) -> Session:
    """Return this process's session, created at the first call. Raises pytest.UsageError."""
    if SESSION not in config.stash:
        config.stash[SESSION] = usage(lambda: _create(config))
    return config.stash[SESSION]


def _create(config: pytest.Config) -> Session:
    from nodeproof.labs.client import topology
    from nodeproof.report.rundir import new_folder
    from nodeproof.session import planning
    from nodeproof.session.admission import FOLDER, Admission
    from nodeproof.session.options import resolve

    names = ("lab", "profile", "kubernetes_version", "components", "claim", "nodes", "zones")
    lab, profile, version, components, claim_ids, nodes, zones = (config.getoption(name) for name in names)
    file = config.getoption("topology")
    entries = topology.read(Path(file)) if file else ()
    arguments = (lab, profile, version, components, tuple(claim_ids), nodes, zones)
    options = resolve(*arguments, _workers(config), entries)
    if config.getoption("shard"):
        parse(config.getoption("shard"))
    claims = dict(catalogue.load(config.getini("nodeproof_claims")))
    for claim in options.claims:
        catalogue.asked_for(claim, claims)
    worker = getattr(config, "workerinput", None)
    top = config.rootpath if config.inipath else config.invocation_params.dir
    out = top / config.getini("nodeproof_out")
    folder = worker["nodeproof_run"] if worker else config.getoption("run")
    run = Path(folder) if folder else new_folder(out, options.profile, options.kind)
    # Workers must compute the same plan, so the controller passes them its durations.
    times = config.getoption("times")
    durations_s = worker["nodeproof_known"] if worker else planning.durations(times, out, options)
    command = " ".join(["pytest", *config.invocation_params.args])
    began, is_worker = datetime.now(UTC), worker is not None
    telling = _progress_of(config, run)
    say = _printer(config, telling if is_worker else config.stash.get(LIVE, None))
    admission = Admission(run / FOLDER, worker["workerid"] if worker else "run", _workers(config))
    facts = (options, claims, run, began, command, is_worker)
    return Session(*facts, say, durations_s, admission, telling=telling)


def _progress_of(config: pytest.Config, run: Path) -> Telling | None:
    """Return the reporter of this process's progress, or None if no terminal shows it."""
    from nodeproof.session.telling import Telling

    worker, live = getattr(config, "workerinput", None), config.stash.get(LIVE, None)
    if live is not None:
        live.follow(run)
    is_drawn = worker["nodeproof_drawn"] if worker else live is not None and live.is_drawn
    return Telling(run, worker["workerid"] if worker else "run") if is_drawn else None


def plan_for(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Determine the size of the labs, and assign the scenarios to as many slots as there are workers."""
    from nodeproof.session import planning

    scenarios = [item for item in items if item.get_closest_marker("claims")]
    options, shared = session.options, is_planned(config) and _may_share(session.options)
    session.size = asked.common_size(map(asked.needs, scenarios), options)
    slots = _workers(config) or 1
    session.slots = planning.plan(scenarios, options, slots, session.durations_s, session.size, shared)
    session.zones_shared = planning.zones(session.slots, options, session.size) if shared else 0
    if is_planned(config):
        items[:] = planning.in_order(items, session.slots)
        return
    # Another lab size costs a lab start, and a standing fault costs an injection, so group equal needs.
    needs = {item: asked.needs(item) for item in scenarios}
    large = (item for item in scenarios if asked.is_large(needs[item], options))
    sizes = {item: asked.size(needs[item], options) for item in large}
    standing_keys = {item: asked.key(asked.standing(item)) for item in scenarios}

    def order(item: pytest.Item) -> tuple[bool, Size, str, bool]:
        size = sizes.get(item, session.size)
        return item in sizes, size, standing_keys.get(item, ""), asked.is_quick(item)

    items.sort(key=order)
    if len(session.slots) == 1:
        session.slots = planning.as_they_come(items, session.slots[0])


def keep_shard(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Deselect the scenarios of other shards; tests without claims belong to the first shard.

    Durations of this machine's own runs are ignored: each machine would divide the scenarios differently.

    Raises:
        Problem: A shard would have nothing to run.
    """
    from nodeproof.session import planning

    number, of = parse(config.getoption("shard"))
    scenarios = [item for item in items if item.get_closest_marker("claims")]
    durations_s = session.durations_s if config.getoption("times") else planning.shipped(session.options)
    divided = planning.shards(scenarios, session.options, of, durations_s)
    own = {expected.scenario for expected in divided[number - 1]}
    if not all(divided):
        raise Problem(
            f"{of} shards of {len(scenarios)} scenarios: some would have nothing to run", "--shard",
            f"use at most {len(scenarios)} shards",
        )  # fmt: skip
    claims = _declared_claims(items)
    parts = tuple(
        {expected.scenario: tuple(claims[expected.scenario]) for expected in part} for part in divided
    )
    options = session.options
    facts = (options.kind, options.profile, options.kubernetes_version, session.began.isoformat())
    session.shard = Shard(number, *facts, options.claims, parts)
    session.shards_last_s = tuple(sum(expected.lasts_s for expected in part) for part in divided)
    deselected = [item for item in items if item.nodeid not in own and (item in scenarios or number > 1)]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in deselected]


def _may_share(options: Options) -> bool:
    """Return whether slots may be zones of one lab, as no option determines the labs."""
    from nodeproof.labs.kinds import kind_named

    is_free = options.is_ours and not options.nodes and not options.zones
    return is_free and kind_named(options.kind).limits.zones_per_core > 0


def open_run(config: pytest.Config, session: Session, items: Sequence[pytest.Item]) -> None:
    """Create the run's folder, write the plan, and let Allure write its results there."""
    from nodeproof.report import rundir, shards
    from nodeproof.session import planning, published

    rundir.create(session.run)
    signal.signal(signal.SIGINT, interrupt_once(lambda: say_what_ends(config)))
    rundir.write_json(session.run / rundir.DECLARED, _declared_claims(items))
    if session.shard is not None:
        # `nodeproof merge` needs to know what should run here, even if this run is aborted.
        shards.write(session.run, session.shard)
    (session.run / SELECTED).write_text("\n".join(sorted(session.selected)))
    if len(session.slots) == 1 or is_planned(config):
        planning.write(session.run, session.slots, planning.starts_s(session.options, session.durations_s))
    if not config.getoption("allure_report_dir", default=None):
        allure = config.pluginmanager.get_plugin("allure_pytest")
        if allure is not None:
            config.option.allure_report_dir = str(session.run / "allure-results")
            allure.pytest_configure(config)
    if config.getoption("allure_report_dir", default=None):
        published.clean_allure(config)


def _declared_claims(items: Sequence[pytest.Item]) -> Mapping[str, Sequence[str]]:
    """Return the declared claims of each scenario."""
    return {item.nodeid: claims for item in items if (claims := asked.declared(item))}


def is_planned(config: pytest.Config) -> bool:
    """Return whether xdist schedules scenarios by the plan: in `nodeproof run`, unless --dist is given."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return bool(worker["nodeproof_planned"])
    return bool(config.getoption("shipped")) and config.getoption("dist", "no") == "load"


def _workers(config: pytest.Config) -> int:
    """Return the number of xdist's workers; 0 without xdist."""
    count = getattr(config, "workerinput", {}).get("workercount")
    return int(
        count or len(config.getoption("tx", None) or ()) or config.getoption("numprocesses", None) or 0
    )


def look_around(session: Session, config: pytest.Config) -> None:
    """Sample the machine's load before the run, set the number of workers to begin with, and warn of load."""
    from nodeproof.load import busy_share
    from nodeproof.model.load import initial
    from nodeproof.session import admission

    most, share = _workers(config), busy_share(_SAMPLE_S)
    workers = initial(most, share)
    admission.allow(session.run / admission.FOLDER, workers)
    if share > _BUSY:
        session.say(
            f"this machine is busy: other programs use {share * 100:.0f} % of its processors; "
            f"the run may take up to {1 / max(1 / most, 1 - share):.1f} times as long"
        )


def provider_of(session: Session) -> LabProvider:
    from nodeproof.labs.client.starting import come_first
    from nodeproof.session import planning
    from nodeproof.session.running import LabProvider

    if session.provider is None:
        if session.is_worker:
            come_first()
        slots = planning.in_use(session.slots) if session.options.is_ours else 0
        sizes = (session.size, session.zones_shared, slots)
        turns = (session.admission.lab_start, session.admission.leave)
        session.provider = LabProvider(session.options, session.run, session.say, *sizes, *turns)
    return session.provider


def break_off(session: Session, reason: str) -> NoReturn:
    """End the whole session as its environment is unsuitable; a file passes the reason to the controller."""
    from nodeproof.report import facts_left

    reason = printable(redact.text(reason))
    (session.run / facts_left.BROKEN_OFF).write_text(reason)
    session.say(reason)
    pytest.exit(f"nodeproof: {reason}", returncode=2)


def say_what_ends(config: pytest.Config) -> None:
    """Tell a user who presses Ctrl-C again that the shutdown goes on, and which faults are active."""
    session = config.stash.get(SESSION, None)
    if session is None:
        return
    session.say("shutting down cleanly, please wait")
    if session.provider is not None and session.provider.lab is not None:
        session.provider.lab.safety.injector.say_what_is_in()


def _printer(config: pytest.Config, drawn: Telling | Live | None) -> Callable[[str], None]:
    """Return a function that prints a line at once.

    It prints above the slots if they are drawn, else on standard error, past pytest's capture.
    """
    capture = config.pluginmanager.getplugin("capturemanager")
    shows_details = not config.getoption("shipped") or config.option.verbose > 0

    def say(message: str) -> None:
        if isinstance(message, Counted) and not message.is_milestone:
            return
        line = redact.text(message)
        if drawn is not None and drawn.say(line):
            return
        if isinstance(message, Detail) and not shows_details:
            return
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            terminal.say(line)

    return say


def usage(make: Any) -> Any:
    """Call `make` and turn a Problem into pytest's usage error (exit code 4)."""
    try:
        return make()
    except Problem as problem:
        raise pytest.UsageError(f"nodeproof: {problem}") from problem
