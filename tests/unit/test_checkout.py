"""Checkouts of Kubernetes: version, content, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nodeproof.artifacts.build import checkout_go_mod
from nodeproof.artifacts.checkout import Checkout, checkout_of, content_hash, read_checkout
from nodeproof.model.overrides import Overrides, suffix
from nodeproof.model.problem import Problem
from tests.checkouts import GO_MOD, commit, contents, git, write_checkout


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
    ("missing", "message"),
    [
        ("go.mod", "go.mod cannot be read"),
        ("go.sum", "it lacks go.sum"),
        ("staging/src/k8s.io/component-base/go.mod", "it lacks staging/src/k8s.io/component-base"),
    ],
)
def test_incomplete_checkout_is_refused(checkout: Path, missing: str, message: str) -> None:
    (checkout / missing).unlink()
    with pytest.raises(Problem, match=message) as caught:
        read_checkout(checkout, "v1.36.3")
    assert caught.value.where == f"--source {checkout}"


def test_other_modules_are_refused(checkout: Path) -> None:
    (checkout / "go.mod").write_text("module example.com/other\n")
    with pytest.raises(Problem, match="is not that of"):
        read_checkout(checkout, "v1.36.3")


def test_checkout_and_executables_exclude_each_other(checkout: Path) -> None:
    assert checkout_of("", "/bin", "") is None
    with pytest.raises(Problem, match="both a checkout and executables"):
        checkout_of(str(checkout), "/bin", "v1.36.3")


@pytest.mark.parametrize(
    "name", ["pkg/limits/limits.go", "pkg/limits/added.tmpl", "go.mod", "pkg/vendor/a.go"]
)
def test_content_covers_each_file_that_a_build_reads(checkout: Path, name: str) -> None:
    before = content_hash(checkout)
    (checkout / name).parent.mkdir(exist_ok=True)
    (checkout / name).write_text("changed")
    assert content_hash(checkout) != before


@pytest.mark.parametrize(
    "name", ["pkg/limits/limits_test.go", "pkg/limits/testdata/a.go", "_output/bin/kubelet", "vendor/a.go"]
)
def test_content_ignores_what_no_build_reads(checkout: Path, name: str) -> None:
    before = content_hash(checkout)
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text("added")
    assert content_hash(checkout) == before


def test_content_depends_on_neither_commit_nor_place(checkout: Path, tmp_path: Path) -> None:
    before = content_hash(checkout)
    commit(checkout)
    copy = shutil.copytree(checkout, tmp_path / "copy")
    assert content_hash(checkout) == content_hash(copy) == before
    (copy / "pkg/limits/limits.go").rename(copy / "pkg/limits/other.go")
    assert content_hash(copy) != before


def test_go_mod_names_the_folders_of_the_checkout() -> None:
    lines = checkout_go_mod(GO_MOD, Path("/src/my kubernetes")).splitlines()
    assert lines[0] == "module nodeproof.dev/components"
    base = "/src/my kubernetes/staging/src/k8s.io/component-base"
    assert f'replace k8s.io/component-base => "{base}"' in lines
    assert 'replace k8s.io/kubernetes => "/src/my kubernetes"' in lines


def test_runs_of_other_sources_are_kept_apart() -> None:
    sources = [Checkout("/src", "v1.36.3", "", 0, content).text for content in "ab"]
    texts = {Overrides(source=source).texts for source in ("", *sources)}
    assert len({suffix(text) for text in texts}) == 3
