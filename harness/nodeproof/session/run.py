"""One pytest process and its run: what was asked for, the run's folder, and its lab once one is wanted.

Every pytest with this plugin loads this module: what a run needs is imported when there is one.
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
_LOOK_S = 1.0
"""How long (s) the machine is sampled before a run."""
_BUSY = 0.2
"""Share of the processors in use by other programs from which on a run says so."""


@dataclass
class Session:
    """What one pytest process knows of its run; `provider` is made with the first scenario."""

    options: Options
    claims: dict[str, Claim]
    run: Path
    began: datetime
    command: str
    is_worker: bool
    say: Callable[[str], None]
    durations_s: Mapping[str, float]
    """How long scenarios took before."""
    admission: Admission
    selected: set[str] = field(default_factory=set)
    slots: tuple[Slot, ...] = ()
    size: Size = field(default_factory=lambda: Size(2, 1))
    """Of a lab, or of a zone of one that is shared, for all that need no lab of a size of their own."""
    zones_shared: int = 0
    """As many zones has the lab that slots share; none is shared where there are none."""
    shard: Shard | None = None
    """Where the run is one of several shards, and what is in the others."""
    shards_last_s: tuple[float, ...] = ()
    """How long (s) each of them is expected to last in one slot."""
    provider: LabProvider | None = None
    put_off: list[pytest.Item] = field(default_factory=list)
    """Scenarios that run again at the end."""
    telling: Telling | None = None
    """Where slots are drawn on a terminal."""

    def is_alone(self, nodeid: str) -> bool:
        """Whether the scenario has a lab to itself."""
        return any(each.is_alone for slot in self.slots for each in slot.scenarios if each.scenario == nodeid)

    def shares_later(self, nodeid: str) -> bool:
        """Whether the scenario has a lab to itself, and its slot needs a zone of the shared one later."""
        for slot in self.slots:
            if any(each.scenario == nodeid and each.is_alone for each in slot.scenarios):
                return shares(slot, self.slots)
        return False


SESSION = pytest.StashKey[Session]()
LIVE = pytest.StashKey["Live"]()


def session_of(config: pytest.Config) -> Session:
    """What this process knows of its run, made when first asked for. Raises pytest.UsageError."""
    if SESSION not in config.stash:
        config.stash[SESSION] = usage(lambda: _make(config))
    return config.stash[SESSION]


def _make(config: pytest.Config) -> Session:
    from nodeproof.labs.client import topology
    from nodeproof.report.rundir import new_folder
    from nodeproof.session import planning
    from nodeproof.session.admission import FOLDER, Admission
    from nodeproof.session.options import resolve

    names = ("lab", "profile", "kubernetes_version", "components", "claim", "nodes", "zones")
    lab, profile, version, components, wanted, nodes, zones = (config.getoption(name) for name in names)
    file = config.getoption("topology")
    entries = topology.read(Path(file)) if file else ()
    asked_for = (lab, profile, version, components, tuple(wanted), nodes, zones)
    options = resolve(*asked_for, _workers(config), entries)
    if config.getoption("shard"):
        parse(config.getoption("shard"))
    claims = dict(catalogue.load(config.getini("nodeproof_claims")))
    for claim in options.claims:
        catalogue.asked_for(claim, claims)
    worker = getattr(config, "workerinput", None)
    top = config.rootpath if config.inipath else config.invocation_params.dir
    out = top / config.getini("nodeproof_out")
    given = worker["nodeproof_run"] if worker else config.getoption("run")
    run = Path(given) if given else new_folder(out, options.profile, options.kind)
    # Workers have to come to the same plan: they are told what the controller found.
    times = config.getoption("times")
    known = worker["nodeproof_known"] if worker else planning.durations(times, out, options)
    command = " ".join(["pytest", *config.invocation_params.args])
    began, is_worker = datetime.now(UTC), worker is not None
    telling = _telling(config, run)
    say = _speaker(config, telling if is_worker else config.stash.get(LIVE, None))
    admission = Admission(run / FOLDER, worker["workerid"] if worker else "run", _workers(config))
    return Session(options, claims, run, began, command, is_worker, say, known, admission, telling=telling)


def _telling(config: pytest.Config, run: Path) -> Telling | None:
    """What this process tells whoever draws the run, where somebody does."""
    from nodeproof.session.telling import Telling

    worker, live = getattr(config, "workerinput", None), config.stash.get(LIVE, None)
    if live is not None:
        live.follow(run)
    is_drawn = worker["nodeproof_drawn"] if worker else live is not None and live.is_drawn
    return Telling(run, worker["workerid"] if worker else "run") if is_drawn else None


def plan_for(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Size the labs for their scenarios, and put those into as many slots as there are workers."""
    from nodeproof.session import planning

    scenarios = [item for item in items if item.get_closest_marker("claims")]
    options, shared = session.options, is_planned(config) and _may_share(session.options)
    session.size = asked.common_size(map(asked.needs, scenarios), options)
    known, slots = session.durations_s, _workers(config) or 1
    session.slots = planning.plan(scenarios, options, slots, known, session.size, shared)
    session.zones_shared = planning.zones(session.slots, options, session.size) if shared else 0
    if is_planned(config):
        items[:] = planning.in_order(items, session.slots)
        return
    # A lab of another size costs a start, what stands an injection: those that need the same come together.
    needs = {item: asked.needs(item) for item in scenarios}
    large = (item for item in scenarios if asked.is_large(needs[item], options))
    sizes = {item: asked.size(needs[item], options) for item in large}
    stands = {item: asked.key(asked.standing(item)) for item in scenarios}

    def turn(item: pytest.Item) -> tuple[bool, Size, str, bool]:
        size = sizes.get(item, session.size)
        return item in sizes, size, stands.get(item, ""), asked.is_quick(item)

    items.sort(key=turn)
    if len(session.slots) == 1:
        session.slots = planning.as_they_come(items, session.slots[0])


def keep_shard(config: pytest.Config, session: Session, items: list[pytest.Item]) -> None:
    """Keep one shard's scenarios; what is no scenario is the first one's. Raises Problem where the shard has
    nothing to run.

    Times that this machine's own runs took would divide otherwise on each machine: they are left out.
    """
    from nodeproof.session import planning

    number, of = parse(config.getoption("shard"))
    scenarios = [item for item in items if item.get_closest_marker("claims")]
    known = session.durations_s if config.getoption("times") else planning.shipped(session.options)
    divided = planning.shards(scenarios, session.options, of, known)
    own = {each.scenario for each in divided[number - 1]}
    if not all(divided):
        raise Problem(
            f"{of} shards of {len(scenarios)} scenarios: some would have nothing to run", "--shard",
            f"ask for at most {len(scenarios)} shards",
        )  # fmt: skip
    declared = _declared(items)
    parts = tuple({each.scenario: tuple(declared[each.scenario]) for each in part} for part in divided)
    options = session.options
    told = (options.kind, options.profile, options.kubernetes_version, session.began.isoformat())
    session.shard = Shard(number, *told, options.claims, parts)
    session.shards_last_s = tuple(sum(each.lasts_s for each in part) for part in divided)
    dropped = [item for item in items if item.nodeid not in own and (item in scenarios or number > 1)]
    config.hook.pytest_deselected(items=dropped)
    items[:] = [item for item in items if item not in dropped]


def _may_share(options: Options) -> bool:
    """Whether slots may be zones of one lab: where nobody said what labs have to be like."""
    from nodeproof.labs.kinds import kind_named

    is_free = options.is_ours and not options.nodes and not options.zones
    return is_free and kind_named(options.kind).limits.zones_per_core > 0


def open_run(config: pytest.Config, session: Session, items: Sequence[pytest.Item]) -> None:
    """Make the run's folder with its plan, and let Allure write into the run."""
    from nodeproof.report import rundir, shards
    from nodeproof.session import planning, published

    rundir.create(session.run)
    signal.signal(signal.SIGINT, interrupt_once(lambda: say_what_ends(config)))
    rundir.write_json(session.run / rundir.DECLARED, _declared(items))
    if session.shard is not None:
        # Who merges has to know what was to run here, also where this run does not come to its end.
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


def _declared(items: Sequence[pytest.Item]) -> Mapping[str, Sequence[str]]:
    """The claims of each scenario; what is no scenario has none."""
    return {item.nodeid: claims for item in items if (claims := asked.declared(item))}


def is_planned(config: pytest.Config) -> bool:
    """Whether xdist gives out scenarios by the plan: in nodeproof's own runs, unless told otherwise."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        return bool(worker["nodeproof_planned"])
    return bool(config.getoption("shipped")) and config.getoption("dist", "no") == "load"


def _workers(config: pytest.Config) -> int:
    """How many xdist has; none without it."""
    told = getattr(config, "workerinput", {}).get("workercount")
    return int(told or len(config.getoption("tx", None) or ()) or config.getoption("numprocesses", None) or 0)


def look_around(session: Session, config: pytest.Config) -> None:
    """Look how busy the machine is before anything starts, begin with as many workers as that leaves room
    for, and say so.
    """
    from nodeproof.load import busy_share
    from nodeproof.model.load import initial
    from nodeproof.session import admission

    most, share = _workers(config), busy_share(_LOOK_S)
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
        told = (session.size, session.zones_shared, slots)
        turns = (session.admission.lab_start, session.admission.leave)
        session.provider = LabProvider(session.options, session.run, session.say, *told, *turns)
    return session.provider


def break_off(session: Session, reason: str) -> NoReturn:
    """End the whole session: its environment does not do. A worker leaves the reason for the controller."""
    from nodeproof.report import facts_left

    reason = printable(redact.text(reason))
    (session.run / facts_left.BROKEN_OFF).write_text(reason)
    session.say(reason)
    pytest.exit(f"nodeproof: {reason}", returncode=2)


def say_what_ends(config: pytest.Config) -> None:
    """Answer who asks again to end."""
    known = config.stash.get(SESSION, None)
    if known is None:
        return
    known.say("what was begun is being ended in order, please wait")
    if known.provider is not None and known.provider.lab is not None:
        known.provider.lab.safety.injector.say_what_is_in()


def _speaker(config: pytest.Config, drawn: Telling | Live | None) -> Callable[[str], None]:
    """Give what prints a line at once: above the slots where they are drawn, else on standard error, past
    pytest's capture.
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
    """Turn a Problem with the command line into pytest's usage error (exit code 4)."""
    try:
        return make()
    except Problem as problem:
        raise pytest.UsageError(f"nodeproof: {problem}") from problem
