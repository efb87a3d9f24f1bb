"""The commands of `nodeproof`. Each imports what it needs when it runs, so that --help is fast."""

from __future__ import annotations

import argparse
import contextlib
import io
import shlex
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nodeproof import run_options, terminal
from nodeproof.cache import ProgressLine
from nodeproof.model.problem import ENVIRONMENT, Problem

if TYPE_CHECKING:
    import pytest

    from nodeproof.artifacts.checkout import Checkout
    from nodeproof.artifacts.components import Components
    from nodeproof.labs.client.handle import LabHandle

_CLEAR_LINE = "\r\x1b[2K"


def _say(line: str) -> None:
    """Print a line on standard error: progress as a bar on a terminal, else only its milestones."""
    cleared = _CLEAR_LINE if sys.stderr.isatty() else ""
    if cleared and isinstance(line, ProgressLine):
        width = shutil.get_terminal_size().columns - 1
        terminal.draw(f"{cleared}{f'nodeproof: {line.bar}'[:width]}")
    elif not isinstance(line, ProgressLine) or line.is_milestone:
        terminal.say(line, cleared)


def doctor(arguments: argparse.Namespace) -> int:
    """Report what is missing for labs to start."""
    from nodeproof import doctor
    from nodeproof.labs.kinds import KINDS

    kinds = [name for name, kind in KINDS.items() if kind.host.is_checked_by_default]
    return 0 if doctor.report(arguments.lab or kinds, arguments.nodes, terminal.put) else 1


def run(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Run pytest on the scenarios, write the report site, and return the exit code for the verdicts."""
    if arguments.options:
        terminal.put(run_options.describe())
        return 0
    return _run(arguments, rest)[0]


class _Config:
    """A pytest plugin that keeps the configuration, with nodeproof's session in it."""

    config: pytest.Config | None = None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Keep it when everything is written."""
        self.config = config


def _run(arguments: argparse.Namespace, rest: list[str]) -> tuple[int, Path | None]:
    """Run pytest on the scenarios, and return the exit code for the verdicts and the run's folder."""
    import pytest

    from nodeproof.report import digest, rundir, site
    from nodeproof.session.run import SESSION

    kept = _Config()
    # pytest prints its own summary lists only if the user passes -r, which then overrides this one.
    options = [*_shipped(), "-rN", *(["--full-trace"] if arguments.debug else []), *_joined(rest)]
    status = int(pytest.main(options, plugins=[kept]))
    session = kept.config.stash.get(SESSION, None) if kept.config else None
    if session is None or not (session.run_folder / "run.json").exists():
        return (0 if status == 0 else ENVIRONMENT), None
    folder = session.run_folder
    if not arguments.no_site:
        judged_page = site.write(folder, _say, session.claims)
        _say(f"report, the Nodes page with its verdicts: {judged_page}")
    facts = rundir.read_facts(folder)
    broken_off = facts.exit_reason or ("" if status in (0, 1) else f"pytest ended with {status}")
    rows = rundir.read_verdicts(folder)
    return digest.exit_code(rows, digest.named_claims(facts, rest), facts.selected, broken_off), folder


def storm(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Run a storm once or several times, and return the exit code of the worst one."""
    from nodeproof.report import rundir
    from nodeproof.session.storm import coverage_summary

    source = arguments.schedule or f"{arguments.minutes:g}"
    options = [f"--storm={source}", f"--storm-seed={arguments.seed}", "--numprocesses=0", *rest]
    options += [f"--storm-coverage={run}" for run in arguments.coverage]
    options += [f"--storm-faults={arguments.faults}"] if arguments.faults else []
    statuses, deviating = [], 0
    for _number in range(arguments.times):
        status, folder = _run(arguments, options)
        statuses.append(status)
        if folder is None:
            return status
        with contextlib.suppress(Problem):
            _say(coverage_summary(folder))
        deviating += any(row["verdict"] == "deviates" for row in rundir.read_verdicts(folder))
    if arguments.times > 1:
        _say(f"an invariant deviated in {deviating} of {arguments.times} storms")
    return max(statuses)


def shrink(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Print the smallest schedule with which an invariant of a storm still deviates, as a scenario."""
    from nodeproof.model.schedule import Schedule
    from nodeproof.report import rundir
    from nodeproof.session import storm as storms

    deviation, against = storms.read_deviation(arguments.run_folder), arguments.against
    seed = deviation.schedule.seed
    out = rundir.new_folder(Path("reports/out").absolute(), "shrink", deviation.claim)
    judge = storms.judge_by_storms(deviation.claim, seed, out, rest)
    shrunk = storms.shrink_deviation(deviation, arguments.minutes, judge, _say)
    schedule = Schedule(seed, shrunk.steps)
    rundir.write_json(out / storms.FILE, schedule.to_json())
    scenario = storms.scenario_text(schedule)
    (out / storms.SCENARIO).write_text(scenario)
    terminal.put(f"{scenario}\n{storms.summary(deviation, shrunk)}\nschedule: {out / storms.FILE}")
    if against:
        other = storms.judge_by_storms(deviation.claim, seed, out / "against", against)
        terminal.put(f"with {' '.join(against)}: {storms.repeat(shrunk.steps, other)}")
    return 0


def _shipped() -> list[str]:
    """Return the options that run the shipped scenarios if no path is given.

    In a checkout, `testpaths` are the tests of the project: their conftest is not for scenarios.
    """
    from nodeproof import catalogue

    scenarios = shlex.quote(str(catalogue.scenarios_dir()))
    # An installed package imports the plugin before pytest could rewrite its asserts; it has none.
    unwarned = ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    return ["--shipped", "-o", f"testpaths={scenarios}", *unwarned]


def bisect(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Print the first commit of Kubernetes on which a claim deviates."""
    from nodeproof import catalogue
    from nodeproof.bisect import find_first_bad, judge_by_runs
    from nodeproof.report import rundir

    catalogue.find_judged(arguments.claim, catalogue.load())
    out = rundir.new_folder(Path("reports/out").absolute(), "bisect", arguments.claim)
    judge = judge_by_runs(arguments.claim, out, rest)
    terminal.put(find_first_bad(arguments.source, arguments.good, arguments.bad, judge, _say))
    return 0


def plan(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Print which worker would run each scenario, or what faults on a cluster would hit; start nothing."""
    if arguments.cluster:
        if rest:
            raise Problem(f"unknown with --cluster: {' '.join(rest)}", "plan", "leave it out")
        from nodeproof.existing import impact

        return impact.plan(arguments.cluster, with_ssh=arguments.ssh)
    if arguments.ssh:
        raise Problem("--ssh needs --cluster", "plan", "name an inventory with --cluster")
    import pytest

    from nodeproof.session.run import describe_plan

    kept, output = _Config(), io.StringIO()
    with contextlib.redirect_stdout(output):
        status = pytest.main([*_shipped(), "--collect-only", *_joined(rest)], plugins=[kept])
    lines = list(describe_plan(kept.config)) if kept.config and status == pytest.ExitCode.OK else []
    if lines:
        terminal.put("\n".join(lines))
        return 0
    # Of a usage error pytest has printed its line.
    if status != pytest.ExitCode.USAGE_ERROR:
        sys.stderr.write(f"{output.getvalue()}\n")
    return ENVIRONMENT


def _joined(rest: Sequence[str]) -> list[str]:
    """Join `--components DIR` into `--components=DIR`.

    When pytest determines rootdir, it takes a separate path for a test path.
    """
    joined: list[str] = []
    for argument in rest:
        if joined and joined[-1] in _PATH_OPTIONS:
            joined[-1] = f"{joined[-1]}={argument}"
        else:
            joined.append(argument)
    return joined


_PATH_OPTIONS = ("--cluster", "--components", "--source", "--lab", "--times", "--topology", "--upgrade-to")


def _checkout(arguments: argparse.Namespace) -> Checkout | None:
    """Return the state of the checkout of --source, if there is one. Raises Problem."""
    from nodeproof.artifacts.checkout import checkout_of

    return checkout_of(arguments.source, arguments.components, arguments.kubernetes_version)


def _obtain(arguments: argparse.Namespace, checkout: Checkout | None) -> Components:
    from nodeproof.artifacts.components import obtain, obtain_from
    from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

    try:
        if checkout:
            return obtain_from(checkout, _say)
        return obtain(arguments.components, arguments.kubernetes_version or DEFAULT_KUBERNETES_VERSION, _say)
    finally:
        if sys.stderr.isatty():
            terminal.draw(_CLEAR_LINE)


def up(arguments: argparse.Namespace) -> int:
    """Start a lab that stays up."""
    from nodeproof.artifacts.components import parse_node_versions, tested_version
    from nodeproof.labs.base.profiles import profile_named
    from nodeproof.labs.client import starting
    from nodeproof.labs.client.starting import LabRequest
    from nodeproof.labs.kinds import DEFAULT_KIND, kind_named
    from nodeproof.model.overrides import parse, parse_control_planes

    name, kind = starting.new_name(), kind_named(arguments.lab or DEFAULT_KIND.name)
    machines = starting.read_topology(arguments.topology)
    spread = machines.spread
    nodes, zones = sum(spread) or arguments.nodes, len(spread) or arguments.zones
    overrides = parse(arguments.feature_gates, arguments.set)
    profile = arguments.profile or kind.default_profile.name
    request = LabRequest(name, nodes, zones, profile, True, kind.name, spread, machines)
    starting.check(request)
    arguments.kubernetes_version = machines.control_plane_version(arguments.kubernetes_version)
    checkout = _checkout(arguments)
    version = tested_version(arguments.components, arguments.kubernetes_version, checkout)
    overrides = replace(
        overrides,
        source=checkout.text if checkout else "",
        node_versions=machines.node_versions(parse_node_versions(arguments.node_versions), version),
        upgrade_to=arguments.upgrade_to,
        control_planes=parse_control_planes(arguments.control_planes),
    )
    starting.check_versions(kind, version, overrides)
    components = _obtain(arguments, checkout)
    overrides = starting.dry_run(overrides, components, kind, profile_named(profile))
    request = replace(request, overrides=overrides)
    _sweep()
    settings = kind.settings(profile_named(profile), overrides)
    _say(f"settings that are not upstream's default: {len(settings)} (a run lists them with --settings)")
    lab = starting.up(request, components, _say)
    lab.close()
    terminal.put(lab.name)
    down = f"nodeproof down --lab-name {lab.name}"
    _say(f"try `nodeproof kubectl get nodes` or `nodeproof shell node-1`; finish with `{down}`")
    return 0


def _sweep() -> None:
    """Remove the remains of killed labs, and name those that only root may remove."""
    from nodeproof.labs.client import registry

    for name in registry.sweep():
        _say(f"removed the remains of lab {name}")
    for folder in registry.unswept_folders():
        _say(f"a killed start left files that only root can remove: sudo rm -rf {folder}")


def _attach(name: str | None) -> LabHandle:
    from nodeproof.labs.client import registry

    return registry.attach(registry.default_lab(name))


def _names(arguments: argparse.Namespace) -> list[str]:
    """Return the lab named by --lab-name, or all that are up. Raises Problem if the named one is not up."""
    from nodeproof.labs.client import registry

    return [registry.default_lab(arguments.lab_name)] if arguments.lab_name else registry.running()


def status(arguments: argparse.Namespace) -> int:
    """Print the nodes and components of labs."""
    from nodeproof.labs.client import registry

    names = _names(arguments)
    if not names:
        terminal.put("no lab is up")
    for name in names:
        status = registry.client(name).status()
        terminal.put(
            f"{name}: {status.kind} lab, {status.phase}, "
            f"Kubernetes {status.kubernetes_version}, profile {status.profile}"
        )
        for setting in status.overrides.texts:
            terminal.put(f"  {setting}")
        for node in status.nodes:
            power = "on" if node.is_on else "off"
            addresses = f"control {node.control_address}  data {node.data_address}"
            terminal.put(f"  {node.name:<12} {power:<4} {node.zone:<8} {addresses}")
        components = sorted(part for part in status.components if not part.startswith("node-"))
        terminal.put(f"  components: {', '.join(components)}")
        terminal.put(f"  {registry.describe_memory(status)}")
        armed = ", ".join(f"{fault} in {left} s" for fault, left in status.armed.items())
        terminal.put(f"  dead-man's switches: {armed or 'none'}")
    return 0


def down(arguments: argparse.Namespace) -> int:
    """Tear labs down, and remove the remains of killed ones."""
    from nodeproof.labs.client import registry

    for name in _names(arguments):
        registry.down(name)
        _say(f"lab {name} is down")
    _sweep()
    return 0


def heal(arguments: argparse.Namespace) -> int:
    """Heal the faults that interrupted runs left."""
    from nodeproof.faults import plugin_errors
    from nodeproof.labs.client import registry
    from nodeproof.labs.kinds import KINDS

    for message in (*plugin_errors(), *KINDS.errors):
        _say(message)
    if arguments.cluster:
        if arguments.lab_name:
            raise Problem("a cluster is no lab", "--lab-name", "leave it out with --cluster")
        registry.heal_cluster(arguments.cluster)
        _say("no fault is left")
        return 0
    _sweep()
    problems = []
    for name in _names(arguments):
        try:
            registry.heal(name)
        except Problem as problem:
            problems.append(problem)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise Problem("; ".join(str(problem) for problem in problems), "heal", "follow the step of each")
    _say("no fault is left")
    return 0


def shell(arguments: argparse.Namespace) -> int:
    """Open a shell on a node, or run a command there."""
    from nodeproof.labs.client.outside import interactive

    lab = _attach(arguments.lab_name)
    if not arguments.argv:
        return interactive(lab, arguments.node)
    completed = lab.fleet.machine(arguments.node).run(arguments.argv, timeout_s=600)
    lab.close()
    sys.stdout.write(completed.stdout)
    sys.stderr.write(completed.stderr)
    return completed.status


def claims(arguments: argparse.Namespace) -> int:
    """Print every claim, and where it is judged."""
    from nodeproof.session.coverage import coverage

    terminal.put(coverage(arguments.paths))
    return 0


def new(arguments: argparse.Namespace) -> int:
    """Write an example, and print its files."""
    from nodeproof import new

    for path in new.write(arguments.kind, arguments.name, arguments.folder):
        terminal.put(str(path))
    return 0


def logs(arguments: argparse.Namespace) -> int:
    """Print a log, or list the logs; also while the lab starts, to show why a component does not come up."""
    from nodeproof.labs.base.wire import folder_of
    from nodeproof.labs.client import registry

    lab = registry.default_lab(arguments.lab_name)
    folder = folder_of(registry.client(lab).logs())
    names = sorted(path.name.removesuffix(".log") for path in folder.iterdir())
    if not arguments.name:
        terminal.put("\n".join(names))
        return 0
    if arguments.name not in names:
        raise Problem(f"no log {arguments.name!r}", f"lab {lab}", f"there are: {', '.join(names)}")
    path = folder / arguments.name
    text = (path if path.exists() else folder / f"{arguments.name}.log").read_text(errors="replace")
    sys.stdout.write(text)
    return 0


def inside(arguments: argparse.Namespace) -> int:
    """Run a program in a lab's network."""
    from nodeproof.labs.client.outside import run_inside

    return run_inside(_attach(arguments.lab_name), arguments.argv)


def proxy(arguments: argparse.Namespace) -> int:
    """Serve the lab's API on a loopback port until Ctrl-C."""
    from nodeproof.labs.client.outside import serve_api

    def say(port: int, config: Path) -> None:
        terminal.put(f"export KUBECONFIG={config}")
        terminal.say(f"the lab's API is on 127.0.0.1:{port} until Ctrl-C")

    with contextlib.suppress(KeyboardInterrupt):
        serve_api(_attach(arguments.lab_name), arguments.port, say)
    return 0


def kubectl(arguments: argparse.Namespace, rest: list[str]) -> int:
    """Run a lab's own kubectl."""
    stdin = sys.stdin.read() if "-" in rest else ""
    completed = _attach(arguments.lab_name).cluster.run_kubectl(rest, 600, stdin)
    sys.stdout.write(completed["stdout"])
    sys.stderr.write(completed["stderr"])
    return int(completed["status"])


def components(arguments: argparse.Namespace) -> int:
    """Build or check the components, and list them."""
    checkout = _checkout(arguments)
    if checkout:
        _say(checkout.text)
    components = _obtain(arguments, checkout)
    for role, part in components.by_role.items():
        terminal.put(f"{role:<24} {part.version:<10} {part.origin:<9} {part.sha256[:12]}  {part.path}")
    return 0


def bundle(arguments: argparse.Namespace) -> int:
    """Pack nodeproof and the parts of a lab."""
    from nodeproof import bundle, hints
    from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION

    bundle.write(arguments.file, arguments.kubernetes_version or DEFAULT_KUBERNETES_VERSION, _say)
    size_mib = arguments.file.stat().st_size / 2**20
    next_step = hints.page("docs/how-to/run-without-a-network.md")
    terminal.put(f"{arguments.file}: {size_mib:.0f} MiB; next: {next_step}")
    return 0


def box(arguments: argparse.Namespace) -> int:
    """Build the guest image as a Vagrant box."""
    from nodeproof.artifacts.image import golden_image
    from nodeproof.labs.kinds.libvirt import box

    box.make(arguments.folder, golden_image(_obtain(arguments, _checkout(arguments)), _say), _say)
    return 0
