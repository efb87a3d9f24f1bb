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
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/page\.html")
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
                with _environment(python) as venv:
                    size_mib = _check(venv, wheel, address)
                    if not is_offline:
                        _check_extras(venv, address)
                took_s = time.monotonic() - began
                size = f"{size_mib:.0f} MiB without extras"
                print(f"dist: {name}: checked in {took_s:.0f} s; {size}", flush=True)
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
    with _environment(Path(sys.executable)) as venv:
        _install_release_tools(venv)
        venv.run(["twine", "check", "--strict", str(wheel), str(sdist)])
    print("dist: twine check passed")


def _install_release_tools(venv: _Venv) -> None:
    """Install twine and pipx."""
    lock = str(TOP / "requirements-release.lock")
    venv.run(["pip", "--quiet", "install", "--require-hashes", "-r", lock])


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


class _Venv:
    """A virtual environment in a folder outside the checkout, where its programs run."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        self._bin = folder / "venv" / "bin"
        proc.run([str(python), "-m", "venv", str(self._bin.parent)], timeout_s=_TIMEOUT_S)
        self._variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(
        self, module: Sequence[str], variables: Mapping[str, str] | None = None, *, check: bool = True
    ) -> proc.Result:
        """Run a module of its Python. Raises CommandFailed if it fails."""
        argv, env = [str(self._bin / "python"), "-m", *module], {**self._variables, **(variables or {})}
        return proc.run(argv, timeout_s=_TIMEOUT_S, cwd=self.folder, env=env, check=check)

    def install(self, extra: str, address: str) -> None:
        """Run README's command with an extra, at the versions of the lock. Raises CheckFailed."""
        self.run(shlex.split(f"{_of_readme('pip')}{extra}"), pip_variables(address, self.folder))

    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._bin.parent.rglob("*") if path.is_file())

    def expect(self, command: str, *, status: int = 0, output: str = "", cwd: Path | None = None) -> None:
        """Run a program. Raises CheckFailed if its exit code is another, or its output lacks `output`."""
        program, *arguments = command.split()
        argv = [str(self._bin / program), *arguments]
        folder = cwd or self.folder
        done = proc.run(argv, timeout_s=_TIMEOUT_S, cwd=folder, env=self._variables, check=False)
        text = f"{done.stdout}\n{done.stderr}"
        if done.status != status or output not in text:
            expected = f"expected {status}, {output!r}"
            raise CheckFailed(f"{' '.join(argv)}: exit code {done.status}, {expected}\n{text}")
        if status == ENVIRONMENT and len(done.stderr.splitlines()) != 1:
            raise CheckFailed(f"{' '.join(argv)}: an error of more than one line\n{text}")

    def expect_served(self, run: Path) -> None:
        """Serve a run's site, and read its page. Raises CheckFailed."""
        log, argv = self.folder / "report.log", [str(self._bin / "nodeproof"), "report", str(run)]
        server = proc.start(argv, log=log, cwd=self.folder, env=self._variables)
        try:
            address = wait_until(
                lambda: _ADDRESS.search(log.read_text()) or server.poll() is not None, _TIMEOUT_S
            )
            if not isinstance(address, re.Match):
                raise CheckFailed(f"nodeproof report: serves nothing\n{log.read_text()}")
            with urllib.request.urlopen(address[0], timeout=_TIMEOUT_S):  # noqa: S310  our own
                pass
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(_TIMEOUT_S)


@contextmanager
def _environment(python: Path) -> Iterator[_Venv]:
    """Create a virtual environment of a Python in a new folder."""
    with TemporaryDirectory(prefix="nodeproof-dist-") as folder:
        yield _Venv(python, Path(folder).resolve())


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


def _check(venv: _Venv, wheel: Path, address: str) -> float:
    """Check what works without an extra; return the size of the packages (MiB). Raises CheckFailed."""
    before = venv.size_bytes()
    venv.install("", address)
    size_mib = (venv.size_bytes() - before) / 2**20
    run = thawed_run(_RUN, venv.folder / "run")
    for command in ("", "--help", "audit --help", "audit --rbac", f"summary {run}"):
        venv.expect(f"nodeproof {command}")
    venv.expect("nodeproof --version", output=f"nodeproof {wheel.name.split('-')[1]}")
    venv.expect("nodeproof audit --kubeconfig nowhere", status=ENVIRONMENT, output="nowhere")
    venv.expect(f"nodeproof page {run}", output="page.html")
    venv.expect(f"nodeproof recheck {run}", status=1, output="deviates 1")
    venv.expect(f"nodeproof compare {run} {run / 'recheck'}")
    venv.expect(f"nodeproof matrix {run} {run / 'recheck'}", output="cordon.")
    venv.expect(f"nodeproof junit {run}", output="<testsuites")
    venv.expect_served(run / "recheck")
    venv.expect("nodeproof run", status=ENVIRONMENT, output=_NEEDS_LAB)
    venv.expect("nodeproof doctor", status=ENVIRONMENT, output=_NEEDS_LAB)
    return size_mib


def _check_extras(venv: _Venv, address: str) -> None:
    """Check the extras `csi` and `lab`. Raises CheckFailed."""
    (data,) = venv.folder.glob("venv/lib/*/site-packages/nodeproof/_data")
    venv.expect("python -m infra.csi --help", status=ENVIRONMENT, output=_NEEDS_CSI, cwd=data)
    venv.install("[csi]", address)
    venv.expect("python -m infra.csi --help", output="--endpoint", cwd=data)
    venv.expect("nodeproof claims", status=ENVIRONMENT, output=_NEEDS_LAB)
    venv.install("[lab]", address)
    venv.expect("nodeproof run --collect-only -q", output="test_kubelet_renews_its_lease")
    venv.expect("nodeproof claims", output="cordon.taint")


def _check_pipx(wheel: Path, address: str) -> None:
    """Run README's command of pipx on a kubeconfig that does not exist. Raises CheckFailed."""
    with _environment(Path(sys.executable)) as venv:
        _install_release_tools(venv)
        variables = {"PIPX_HOME": str(venv.folder), "PIPX_DEFAULT_BACKEND": "pip"}
        command = [*shlex.split(_of_readme("pipx")), "--kubeconfig", "nowhere"]
        done = venv.run(command, {**pip_variables(address, venv.folder), **variables}, check=False)
    if done.status != ENVIRONMENT or "nowhere" not in done.stderr:
        raise CheckFailed(f"{' '.join(command)}: exit code {done.status}\n{done.stdout}{done.stderr}")
    print(f"dist: pipx runs {wheel.name}")


if __name__ == "__main__":
    sys.exit(main())
