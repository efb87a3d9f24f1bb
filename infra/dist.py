"""`python -m infra.dist [--all] [--offline]`: build sdist and wheel into dist/, and check both.

The wheel is built from the sdist, and has exactly the files that git tracks in the folders that it ships.
Each Python of the classifiers that this machine has gets a new virtual environment. README's commands install
nodeproof there, from an index in which the wheel is the only file of that name. Outside the checkout, the
commands that read runs read a recorded run without extras; then the CSI driver starts with the extra `csi`,
and the scenarios are collected with `lab`. With --all, a Python that this machine does not have is an error.
With --offline the wheel in dist/ is checked without extras, which is all that works on other systems than
Linux.
"""

from __future__ import annotations

import http.client
import os
import re
import shlex
import shutil
import signal
import sys
import threading
import time
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from nodeproof import proc
from nodeproof.model.problem import ENVIRONMENT
from nodeproof.waiting import wait_until
from tests.documented import commands
from tests.golden_runs import thawed_run

Json = Any
TOP = Path(__file__).resolve().parents[1]
OUT = TOP / "dist"
PROJECT: Json = tomllib.loads((TOP / "pyproject.toml").read_text())
_RUN = "format-1"
"""A whole run of `tests/runs_of_before`; a claim in it deviates."""
_TIMEOUT_S = 500.0
_MINOR = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
_PINNED = re.compile(r"^[\w.-]+==\S+", re.MULTILINE)
_ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/page\.html")
_PYPI = "https://pypi.org/simple"
_NEEDS_LAB = "nodeproof[lab]"
_NEEDS_CSI = "nodeproof[csi]"


class CheckFailed(Exception):
    """A command did not answer as it should."""


def main() -> int:
    """Build and check; return 1 if a check fails."""
    is_offline = "--offline" in sys.argv[1:]
    try:
        wheel = _built() if is_offline else _new()
        pythons = dict(_pythons())
        with index(wheel) as address:
            for name, python in pythons.items():
                if python is None:
                    print(f"dist: {name}: not on this machine, not checked")
                    continue
                began = time.monotonic()
                with TemporaryDirectory(prefix="nodeproof-dist-") as folder:
                    target = _Target(python, wheel, Path(folder).resolve(), address)
                    size_mib = _check(target)
                    if not is_offline:
                        _check_extras(target)
                took_s = time.monotonic() - began
                print(
                    f"dist: {name}: checked in {took_s:.0f} s; {size_mib:.0f} MiB without extras", flush=True
                )
            if not is_offline:
                _check_pipx(wheel, address)
    except (CheckFailed, proc.CommandFailed) as error:
        print(f"dist: {error}", file=sys.stderr)
        return 1
    is_enough = all if "--all" in sys.argv[1:] else any
    return 0 if is_enough(pythons.values()) else 1


def _built() -> Path:
    wheels = list(OUT.glob("nodeproof-*.whl"))
    if len(wheels) != 1:
        raise CheckFailed(f"{OUT}: {len(wheels)} wheels, expected 1; run `make dist` without --offline")
    return wheels[0]


def _new() -> Path:
    wheel, sdist = build()
    check_files(wheel)
    _check_metadata(wheel, sdist)
    return wheel


def build() -> tuple[Path, Path]:
    """Build the sdist from the checkout and the wheel from the sdist; return the wheel and the sdist."""
    shutil.rmtree(OUT, ignore_errors=True)
    hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(OUT)]
    proc.run([*hatch, "-t", "sdist"], timeout_s=_TIMEOUT_S, cwd=TOP)
    (sdist,) = OUT.glob("nodeproof-*.tar.gz")
    with TemporaryDirectory(prefix="nodeproof-dist-") as folder:
        shutil.unpack_archive(sdist, folder)
        (source,) = Path(folder).iterdir()
        proc.run([*hatch, "-t", "wheel"], timeout_s=_TIMEOUT_S, cwd=source)
    (wheel,) = OUT.glob("nodeproof-*.whl")
    for path in (wheel, sdist):
        print(f"dist: {path.relative_to(TOP)}: {path.stat().st_size / 2**20:.1f} MiB")
    return wheel, sdist


def check_files(wheel: Path) -> None:
    """Raise CheckFailed if the wheel lacks a file, or has another one."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("nodeproof/")}
    expected = set(expected_files())
    if names != expected:
        lacks, has = sorted(expected - names), sorted(names - expected)
        raise CheckFailed(f"{wheel.name} lacks {lacks or 'nothing'}, and has what git does not: {has}")


def expected_files() -> Iterator[str]:
    """Yield the path in the wheel of each tracked file of the folders that the wheel ships."""
    target = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {package: Path(package).name for package in target["packages"]} | target["force-include"]
    for folder, shipped_as in folders.items():
        listing = proc.run(["git", "ls-files", "-z", folder], timeout_s=_TIMEOUT_S, cwd=TOP).stdout
        yield from (f"{shipped_as}{path.removeprefix(folder)}" for path in listing.split("\0") if path)


def _check_metadata(wheel: Path, sdist: Path) -> None:
    with TemporaryDirectory(prefix="nodeproof-dist-") as folder:
        python = _release_tools(Path(folder))
        twine = [str(python), "-m", "twine", "check", "--strict", str(wheel), str(sdist)]
        proc.run(twine, timeout_s=_TIMEOUT_S)
    print("dist: twine check passed")


def _release_tools(folder: Path) -> Path:
    """Install twine and pipx, and return their Python."""
    python = _environment(Path(sys.executable), folder)
    lock = str(TOP / "requirements-release.lock")
    proc.run(
        [str(python), "-m", "pip", "--quiet", "install", "--require-hashes", "-r", lock], timeout_s=_TIMEOUT_S
    )
    return python


@contextmanager
def index(wheel: Path) -> Iterator[str]:
    """Serve an index in which the wheel is the only file of nodeproof; other names lead to pip's index.

    Yields:
        The address of the index, on loopback.
    """
    # In its address, so that no cache takes another build for it.
    digest = sha256(wheel.read_bytes()).hexdigest()
    link = f"/{digest}/{wheel.name}"
    others = _others()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == link:
                self._answer("application/octet-stream", wheel.read_bytes())
            elif self.path == "/simple/nodeproof/":
                page = f'<!DOCTYPE html><a href="{link}#sha256={digest}">{wheel.name}</a>'
                self._answer("text/html", page.encode())
            else:
                self.send_response(http.HTTPStatus.FOUND)
                self.send_header("Location", f"{others}{self.path.removeprefix('/simple')}")
                self.end_headers()

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple"
        finally:
            server.shutdown()


def _others() -> str:
    """Return the index that this machine's pip is set to."""
    argv = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = proc.run(argv, timeout_s=_TIMEOUT_S, check=False).stdout.strip()
    return (os.environ.get("PIP_INDEX_URL") or configured or _PYPI).rstrip("/")


def _pythons() -> Iterator[tuple[str, Path | None]]:
    """Yield each Python of the classifiers, from PATH or pyenv, or None if this machine does not have it."""
    classifiers = PROJECT["project"]["classifiers"]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    for minor in _MINOR.findall("\n".join(classifiers)):
        name = f"python3.{minor}"
        candidates = [shutil.which(name), *map(str, versions.glob(f"3.{minor}.*/bin/{name}"))]
        # pyenv has a program for a Python that is installed, but not chosen.
        works = (Path(path) for path in candidates if path and _runs(path))
        yield name, next(works, None)


def _runs(python: str) -> bool:
    return proc.run([python, "-c", "import venv"], timeout_s=_TIMEOUT_S, check=False).status == 0


def _environment(python: Path, folder: Path) -> Path:
    """Create a virtual environment, and return its Python."""
    proc.run([str(python), "-m", "venv", str(folder / "venv")], timeout_s=_TIMEOUT_S)
    return folder / "venv" / "bin" / "python"


@dataclass(frozen=True)
class _Target:
    """A Python, the wheel to install there, a folder for everything, and the address of the index."""

    python: Path
    wheel: Path
    folder: Path
    index: str

    @property
    def venv(self) -> Path:
        """The Python of the virtual environment."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def program(self) -> _Program:
        """The installed nodeproof."""
        return _Program(self.venv, self.folder)

    def install(self, extra: str = "") -> None:
        """Run README's command with an extra, at the versions of the lock. Raises CheckFailed."""
        argv = [str(self.venv), "-m", *shlex.split(f"{_of_readme('pip')}{extra}")]
        variables = {**os.environ, **pip_variables(self.index, self.folder)}
        proc.run(argv, timeout_s=_TIMEOUT_S, env=variables)


def pip_variables(address: str, folder: Path) -> Mapping[str, str]:
    """Return the environment that gives pip one index alone, at the versions of the lock."""
    # With hashes, pip refuses every requirement that is a range, also if a constraint pins it.
    constraints = folder / "constraints.txt"
    constraints.write_text("\n".join(_PINNED.findall((TOP / "requirements.lock").read_text())))
    return {
        "PIP_CONSTRAINT": str(constraints),
        "PIP_EXTRA_INDEX_URL": "",
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": address,
        # A package without a wheel would need a compiler and C libraries.
        "PIP_ONLY_BINARY": ":all:",
        "PIP_QUIET": "1",
    }


def _of_readme(program: str) -> str:
    """Return README's command of a program. Raises CheckFailed."""
    texts = [command.text for command in commands(TOP / "README.md") if command.text.split()[0] == program]
    if len(texts) != 1:
        raise CheckFailed(f"README.md: {len(texts)} commands of {program}, expected 1")
    return texts[0]


def _check(target: _Target) -> float:
    """Check what works without an extra; return the size of the packages (MiB). Raises CheckFailed."""
    venv = _environment(target.python, target.folder)
    before = _bytes(venv)
    target.install()
    size_mib = (_bytes(venv) - before) / 2**20
    version = target.wheel.name.split("-")[1]
    _check_offline(target.program, thawed_run(_RUN, target.folder / "run"), version)
    target.program.expect("run", status=ENVIRONMENT, output=_NEEDS_LAB)
    target.program.expect("doctor", status=ENVIRONMENT, output=_NEEDS_LAB)
    return size_mib


def _check_extras(target: _Target) -> None:
    """Check the extras `csi` and `lab`. Raises CheckFailed."""
    driver = _Program(target.venv, _data(target.venv), "python", "-m", "infra.csi")
    driver.expect("--help", status=ENVIRONMENT, output=_NEEDS_CSI)
    target.install("[csi]")
    driver.expect("--help", output="--endpoint")
    target.program.expect("claims", status=ENVIRONMENT, output=_NEEDS_LAB)
    target.install("[lab]")
    target.program.expect("run --collect-only -q", output="test_kubelet_renews_its_lease")
    target.program.expect("claims", output="cordon.taint")


def _check_pipx(wheel: Path, address: str) -> None:
    """Run README's command of pipx on a kubeconfig that does not exist. Raises CheckFailed."""
    with TemporaryDirectory(prefix="nodeproof-dist-") as name:
        folder = Path(name).resolve()
        python = _release_tools(folder)
        variables = {"PIPX_HOME": str(folder), "PIPX_DEFAULT_BACKEND": "pip"}
        argv = [str(python), "-m", *shlex.split(_of_readme("pipx")), "--kubeconfig", "nowhere"]
        done = proc.run(
            argv,
            timeout_s=_TIMEOUT_S,
            cwd=folder,
            env={**os.environ, **pip_variables(address, folder), **variables},
            check=False,
        )
    if done.status != ENVIRONMENT or "nowhere" not in done.stderr:
        raise CheckFailed(f"{' '.join(argv)}: exit code {done.status}\n{done.stdout}{done.stderr}")
    print(f"dist: pipx runs {wheel.name}")


def _check_offline(program: _Program, run: Path, version: str) -> None:
    """Check the commands that need no extra, those that read runs on a recorded one. Raises CheckFailed."""
    for command in ("", "--help", "audit --help", "audit --rbac"):
        program.expect(command)
    program.expect("--version", output=f"nodeproof {version}")
    program.expect("audit --kubeconfig nowhere", status=ENVIRONMENT, output="nowhere")
    program.expect(f"page {run}", output="page.html")
    program.expect(f"recheck {run}", status=1, output="deviates 1")
    program.expect(f"compare {run} {run / 'recheck'}")
    program.expect(f"matrix {run} {run / 'recheck'}", output="cordon.")
    program.expect(f"summary {run}")
    program.expect(f"junit {run}", output="<testsuites")
    program.expect_served(run / "recheck")


def _bytes(venv: Path) -> int:
    return sum(path.stat().st_size for path in venv.parents[1].rglob("*") if path.is_file())


def _data(venv: Path) -> Path:
    (folder,) = venv.parents[1].glob("lib/*/site-packages/nodeproof/_data")
    return folder


class _Program:
    """A program of a virtual environment (default: nodeproof), run in a folder outside the checkout."""

    def __init__(self, python: Path, folder: Path, name: str = "nodeproof", *arguments: str) -> None:
        self._argv, self._folder = [str(python.with_name(name)), *arguments], folder
        self._variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def expect(self, arguments: str, *, status: int = 0, output: str = "") -> None:
        """Run it. Raises CheckFailed if its exit code is another, or its output does not contain `output`."""
        argv = [*self._argv, *arguments.split()]
        done = proc.run(argv, timeout_s=_TIMEOUT_S, cwd=self._folder, env=self._variables, check=False)
        text = f"{done.stdout}\n{done.stderr}"
        if done.status != status or output not in text:
            expected = f"expected {status}, {output!r}"
            raise CheckFailed(f"{' '.join(argv)}: exit code {done.status}, {expected}\n{text}")
        if status == ENVIRONMENT and len(done.stderr.splitlines()) != 1:
            raise CheckFailed(f"{' '.join(argv)}: an error of more than one line\n{text}")

    def expect_served(self, run: Path) -> None:
        """Serve a run's site, and read its page. Raises CheckFailed."""
        log = self._folder / "report.log"
        server = proc.start([*self._argv, "report", str(run)], log=log, cwd=self._folder, env=self._variables)
        try:
            address = wait_until(
                lambda: _ADDRESS.search(log.read_text()) or server.poll() is not None, _TIMEOUT_S
            )
            if not isinstance(address, re.Match):
                raise CheckFailed(f"nodeproof report: serves nothing\n{log.read_text()}")
            connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=_TIMEOUT_S)
            connection.request("GET", "/page.html")
            if connection.getresponse().status != http.HTTPStatus.OK:
                raise CheckFailed("nodeproof report: does not serve page.html")
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(_TIMEOUT_S)


if __name__ == "__main__":
    sys.exit(main())
