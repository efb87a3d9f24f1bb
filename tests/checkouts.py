"""Small checkouts of Kubernetes: a tree with `staging/`, without Kubernetes."""

from __future__ import annotations

from pathlib import Path

from nodeproof import proc

GO_MOD = """\
module k8s.io/kubernetes

go 1.26.0

require k8s.io/component-base v0.0.0

replace k8s.io/component-base => ./staging/src/k8s.io/component-base
"""
_SETTINGS = (
    "user.name=test",
    "user.email=test@example.com",
    "commit.gpgsign=false",
    "maintenance.auto=false",
)
"""Without them, Git packs a large repository in the background, and so changes its files."""


def write_checkout(folder: Path) -> Path:
    """Write a checkout whose programs would print their version, and return its folder."""
    files = {
        "go.mod": GO_MOD,
        "go.sum": "",
        "pkg/limits/limits.go": "package limits\n\nconst Pods = 110\n",
        "staging/src/k8s.io/component-base/go.mod": "module k8s.io/component-base\n\ngo 1.26.0\n",
        "staging/src/k8s.io/component-base/version/base.go": "package version\n\nvar gitVersion string\n\n"
        "func Get() string { return gitVersion }\n",
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run Git in a folder; return its output."""
    options = [option for setting in _SETTINGS for option in ("-c", setting)]
    return proc.run(["git", "-C", str(folder), *options, *arguments], timeout_s=60).stdout.strip()


def commit(folder: Path, tag: str = "") -> str:
    """Commit all files of a folder, which becomes a repository, and return the commit."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=test")
    if tag:
        git(folder, "tag", tag)
    return git(folder, "rev-parse", "--short=12", "HEAD")


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Return time of change and content of each file of a folder, also of Git's."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}
