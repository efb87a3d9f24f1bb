"""The command line: doctor, run, up, status, shell, logs, claims, kubectl, exec, proxy, down, heal, recheck,
report, components, box.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from harness.model.problem import OutsideError, Problem

if TYPE_CHECKING:
    import pytest

    from harness.labs.components import Components
    from harness.labs.lab import Lab

ENVIRONMENT = 2
"""Exit code for usage errors and an environment that does not do."""
DEFAULT_OUT = Path("reports/out")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives its exit code. A Problem is one line, its traceback only with --debug."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = _parser()
    arguments, rest = parser.parse_known_args(given)
    if rest and arguments.command not in ("run", "kubectl"):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    try:
        run: Callable[[argparse.Namespace, list[str]], int] = arguments.do
        return run(arguments, rest)
    except (Problem, OutsideError) as problem:
        if arguments.debug:
            traceback.print_exc()
        print(f"nodeproof: {problem}", file=sys.stderr)
        return ENVIRONMENT
    except KeyboardInterrupt:
        print("nodeproof: interrupted", file=sys.stderr)
        return ENVIRONMENT


def _interrupt(number: int, _frame: object) -> None:
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt(signal.Signals(number).name)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nodeproof", description=__doc__, allow_abbrev=False)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    parser.add_argument("--version", action="version", version=f"nodeproof {version('nodeproof')}")
    commands = parser.add_subparsers(dest="command", required=True)
    _add_doctor(commands.add_parser("doctor", help="what is missing for a lab to start", allow_abbrev=False))
    _add_run(
        commands.add_parser("run", help="run scenarios; verdicts and the Allure site", allow_abbrev=False)
    )
    _add_up(commands.add_parser("up", help="start a lab to use by hand", allow_abbrev=False))
    for name, do, text in (
        ("status", _status, "what runs in a lab"),
        ("down", _down, "tear a lab down, and sweep what killed ones left"),
        ("heal", _heal, "heal every fault that an interrupted run left"),
    ):
        command = commands.add_parser(name, help=text, allow_abbrev=False)
        command.add_argument("--lab-name", default=None, help="which lab, when several are up")
        command.set_defaults(do=do)
    shell = commands.add_parser("shell", help="a shell on a node, or a command after --", allow_abbrev=False)
    shell.add_argument("node")
    shell.add_argument("argv", nargs="*", metavar="COMMAND")
    shell.add_argument("--lab-name", default=None)
    shell.set_defaults(do=_shell)
    logs = commands.add_parser("logs", help="a component's log, or which there are", allow_abbrev=False)
    logs.add_argument("name", nargs="?", default="", help="etcd, kubelet-node-1, console-node-1, ...")
    logs.add_argument("--lab-name", default=None)
    logs.set_defaults(do=_logs)
    kubectl = commands.add_parser("kubectl", help="the lab's own kubectl", add_help=False, allow_abbrev=False)
    kubectl.add_argument("--lab-name", default=None)
    kubectl.set_defaults(do=_kubectl)
    inside = commands.add_parser("exec", help="a program in the lab's network, after --", allow_abbrev=False)
    inside.add_argument("--lab-name", default=None)
    inside.add_argument("argv", nargs="+", metavar="COMMAND")
    inside.set_defaults(do=_exec)
    proxy = commands.add_parser("proxy", help="the lab's API on a loopback port", allow_abbrev=False)
    proxy.add_argument("--lab-name", default=None)
    proxy.add_argument("--port", type=int, default=0, help="default: a free one")
    proxy.set_defaults(do=_proxy)
    recheck = commands.add_parser(
        "recheck", help="judge a saved run again, without a cluster", allow_abbrev=False
    )
    recheck.add_argument("run_folder", metavar="RUN", type=Path)
    recheck.add_argument(
        "--claims", type=Path, action="append", default=[], help="a folder with claims of your own"
    )
    recheck.set_defaults(do=_recheck)
    report = commands.add_parser("report", help="serve a run's Allure site on loopback", allow_abbrev=False)
    report.add_argument("run_folder", metavar="RUN", type=Path, nargs="?", default=DEFAULT_OUT / "latest")
    report.add_argument("--port", type=int, default=0, help="default: a free one")
    report.set_defaults(do=_report)
    claims = commands.add_parser("claims", help="every claim, and where it is judged", allow_abbrev=False)
    claims.add_argument("paths", nargs="*", metavar="PATH", help="scenarios; default: the shipped ones")
    claims.set_defaults(do=_claims)
    components = commands.add_parser("components", help="build or check the components", allow_abbrev=False)
    _add_components(components)
    components.set_defaults(do=_components)
    box = commands.add_parser(
        "box", help="the guest as a Vagrant box, for the Vagrantfile", allow_abbrev=False
    )
    box.add_argument(
        "--folder", type=Path, default=Path(".box"), help="default: .box, where the Vagrantfile is"
    )
    _add_components(box)
    box.set_defaults(do=_box)
    return parser


def _add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lab", action="append", default=None, help="process or libvirt; default: both")
    parser.add_argument("--nodes", type=int, default=2, help="for how many nodes; default 2")
    parser.set_defaults(do=_doctor)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.description = "Other options go to pytest: -k, -m, -x, -n, --claim, --profile, --lab, --nodes, ..."
    parser.add_argument("--no-site", action="store_true", help="write no Allure site")
    parser.set_defaults(do=_run)


def _add_up(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lab", default="process", help="kind of lab: process or libvirt")
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--zones", type=int, default=1)
    parser.add_argument("--profile", default="fast")
    _add_components(parser)
    parser.set_defaults(do=_up)


def _add_components(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kubernetes-version", default="", help="default v1.36.3")
    parser.add_argument("--components", default="build", help="'build', or a folder with the executables")


def _say(line: str) -> None:
    print(f"nodeproof: {line}", file=sys.stderr, flush=True)


def _doctor(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs import doctor
    from harness.labs.kinds import LAB_KINDS

    return 0 if doctor.report(arguments.lab or LAB_KINDS, arguments.nodes, print) else 1


def _run(arguments: argparse.Namespace, rest: list[str]) -> int:
    """pytest on the scenarios, then the site, and the exit code that the verdicts ask for."""
    import pytest

    from harness.report import outcome, rundir, site

    seen = _RunFolder()
    status = int(pytest.main(["--shipped", *_joined(rest)], plugins=[seen]))
    folder = seen.path
    if folder is None or not (folder / "run.json").exists():
        return 0 if status == 0 else ENVIRONMENT
    if not arguments.no_site:
        _say(f"Allure site: {site.generate(folder, _say)}")
    facts = rundir.read_facts(folder)
    broken_off = facts.exit_reason or ("" if status in (0, 1) else f"pytest ended with {status}")
    rows = rundir.read_verdicts(folder)
    return outcome.exit_code(rows, _values(rest, "--claim"), facts.selected, broken_off)


class _RunFolder:
    """A pytest plugin that remembers where the run was written."""

    path: Path | None = None

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        """Ask nodeproof's own plugin, once everything is written."""
        from harness.plugin import run_folder

        self.path = run_folder(config)


def _joined(rest: Sequence[str]) -> list[str]:
    """`--components DIR` as `--components=DIR`: pytest takes a lone path for one of its own when it looks
    for rootdir.
    """
    joined: list[str] = []
    for argument in rest:
        if joined and joined[-1] in _PATH_OPTIONS:
            joined[-1] = f"{joined[-1]}={argument}"
        else:
            joined.append(argument)
    return joined


_PATH_OPTIONS = ("--components", "--lab")


def _values(rest: Sequence[str], option: str) -> list[str]:
    """The values of an option that is passed on to pytest."""
    found = [argument.partition("=")[2] for argument in rest if argument.startswith(f"{option}=")]
    return found + [value for name, value in pairwise(rest) if name == option]


def _obtain(arguments: argparse.Namespace) -> Components:
    from harness.labs.components import DEFAULT_KUBERNETES_VERSION, obtain

    return obtain(arguments.components, arguments.kubernetes_version or DEFAULT_KUBERNETES_VERSION, _say)


def _up(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs import process_lab
    from harness.labs.process_lab import Request
    from harness.labs.profiles import profile_named, settings

    name = process_lab.new_name()
    request = Request(name, arguments.nodes, arguments.zones, arguments.profile, True, arguments.lab)
    process_lab.check(request)
    components = _obtain(arguments)
    for name in process_lab.sweep():
        _say(f"removed what was left of lab {name}")
    for setting in settings(profile_named(arguments.profile), arguments.lab):
        _say(f"not upstream's default: {setting}")
    lab = process_lab.up(request, components, _say)
    lab.close()
    print(lab.name)
    _say("try `nodeproof kubectl get nodes`, `nodeproof shell node-1`, and in the end `nodeproof down`")
    return 0


def _attach(name: str | None) -> Lab:
    from harness.labs import process_lab

    return process_lab.attach(process_lab.the_lab(name))


def _names(arguments: argparse.Namespace) -> list[str]:
    """The lab that was named, or all that are up. Raises Problem when the named one is not."""
    from harness.labs import process_lab

    return [process_lab.the_lab(arguments.lab_name)] if arguments.lab_name else process_lab.running()


def _status(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs import process_lab

    names = _names(arguments)
    if not names:
        print("no lab is up")
    for name in names:
        status = process_lab.client(name).status()
        print(
            f"{name}: {status['kind']} lab, {status['phase']}, "
            f"Kubernetes {status['kubernetes_version']}, profile {status['profile']}"
        )
        for node in status["nodes"]:
            power = "on" if node["on"] else "off"
            addresses = f"control {node['control_address']}  data {node['data_address']}"
            print(f"  {node['name']:<12} {power:<4} {node['zone']:<8} {addresses}")
        components = sorted(part for part in status["components"] if not part.startswith("node-"))
        print(f"  components: {', '.join(components)}")
        print(f"  {process_lab.memory_line(status)}")
        armed = ", ".join(f"{fault} in {left} s" for fault, left in status["armed"].items())
        print(f"  dead-man's switches: {armed or 'none'}")
    return 0


def _down(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs import process_lab

    for name in _names(arguments):
        process_lab.down(name)
        _say(f"lab {name} is gone")
    for name in process_lab.sweep():
        _say(f"removed what was left of lab {name}")
    return 0


def _heal(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs import healing, process_lab

    process_lab.sweep()
    problems = []
    for name in _names(arguments):
        try:
            healing.heal(name)
        except Problem as problem:
            problems.append(problem)
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise Problem("; ".join(str(problem) for problem in problems), "heal", "see each of them")
    _say("no fault is open")
    return 0


def _shell(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs.terminal import interactive

    lab = _attach(arguments.lab_name)
    if not arguments.argv:
        return interactive(lab, arguments.node)
    done = lab.machine(arguments.node).run(arguments.argv, deadline_s=600)
    lab.close()
    sys.stdout.write(done.stdout)
    sys.stderr.write(done.stderr)
    return done.status


def _claims(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.session.matrix import matrix

    print(matrix(arguments.paths))
    return 0


def _logs(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Also of a lab that is starting: what does not come up says why in here."""
    from harness.labs import process_lab
    from harness.labs.wire import folder_of

    lab = process_lab.the_lab(arguments.lab_name)
    folder = folder_of(process_lab.client(lab).logs())
    names = sorted(path.name.removesuffix(".log") for path in folder.iterdir())
    if not arguments.name:
        print("\n".join(names))
        return 0
    if arguments.name not in names:
        raise Problem(f"no log {arguments.name!r}", f"lab {lab}", f"there are: {', '.join(names)}")
    path = folder / arguments.name
    text = (path if path.exists() else folder / f"{arguments.name}.log").read_text(errors="replace")
    sys.stdout.write(text)
    return 0


def _exec(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs.outside import run_inside

    return run_inside(_attach(arguments.lab_name), arguments.argv)


def _proxy(arguments: argparse.Namespace, _rest: list[str]) -> int:
    """Until Ctrl-C, which is how it ends."""
    from harness.labs.outside import serve_api

    def say(port: int, config: Path) -> None:
        print(f"export KUBECONFIG={config}", flush=True)
        print(f"nodeproof: the lab's API is on 127.0.0.1:{port} until Ctrl-C", file=sys.stderr, flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        serve_api(_attach(arguments.lab_name), arguments.port, say)
    return 0


def _kubectl(arguments: argparse.Namespace, rest: list[str]) -> int:
    stdin = sys.stdin.read() if "-" in rest else ""
    done = _attach(arguments.lab_name).run_kubectl(rest, 600, stdin)
    sys.stdout.write(done["stdout"])
    sys.stderr.write(done["stderr"])
    return int(done["status"])


def _recheck(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness import catalogue
    from harness.report import outcome, recheck, rundir, table

    facts = rundir.read_facts(arguments.run_folder)
    before = rundir.read_verdicts(arguments.run_folder)
    rows = recheck.recheck(arguments.run_folder, catalogue.load(arguments.claims))
    print(table.render(rows, facts.duration_s, str(arguments.run_folder)))
    for difference in recheck.differences(before, rows):
        print(f"changed: {difference}")
    return outcome.exit_code(rows, [], facts.selected)


def _report(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.report import site

    if not (arguments.run_folder / "site" / "index.html").exists():
        site.generate(arguments.run_folder, _say)
    site.serve(arguments.run_folder, _say, arguments.port)
    return 0


def _components(arguments: argparse.Namespace, _rest: list[str]) -> int:
    components = _obtain(arguments)
    for role, part in components.by_role.items():
        print(f"{role:<24} {part.version:<10} {part.origin:<9} {part.sha256[:12]}  {part.path}")
    return 0


def _box(arguments: argparse.Namespace, _rest: list[str]) -> int:
    from harness.labs.guest import box
    from harness.labs.image import golden_image

    box.make(arguments.folder, golden_image(_obtain(arguments), _say), _say)
    return 0


if __name__ == "__main__":
    sys.exit(main())
