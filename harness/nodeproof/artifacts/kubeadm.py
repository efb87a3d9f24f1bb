"""What a machine of a kubeadm cluster boots besides its kubelet: kubeadm, and what its container images run.

kubeadm lists the images of its version. Every executable is one that nodeproof builds: those of Kubernetes
and etcd, and CoreDNS, which is stored under `${XDG_CACHE_HOME:-~/.cache}/nodeproof/coredns/<version>-<Go>/`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts import components as kubernetes
from nodeproof.artifacts.build import Packages, build_errors, build_go_version, go_environment
from nodeproof.artifacts.components import KUBEADM, PROXY, Components
from nodeproof.cache import Report, cache_dir, load_or_build, work_folder
from nodeproof.model.problem import Problem

_CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
_ROLES = (*_CONTROL_PLANE, PROXY, "kubelet", KUBEADM, "kubectl")
_COREDNS, _PACKAGE = "coredns", "github.com/coredns/coredns"
_LIST_TIMEOUT_S, _BUILD_TIMEOUT_S = 20.0, 1800.0


@dataclass(frozen=True)
class Parts:
    """The executables of a kubeadm cluster by name, and the names of its container images.

    `identity` tells them from other parts.
    """

    executables: Mapping[str, Path]
    images: Sequence[str]
    identity: str


def obtain(components: Components, report: Report) -> Parts:
    """Return the parts of a cluster of that version; CoreDNS is built now if it is not cached.

    Raises Problem.
    """
    images = _images(components)
    return _parts(components, images, _coredns(_coredns_version(images), report))


def cached(components: Components) -> Parts | None:
    """Return the parts of a cluster of that version; None if CoreDNS is not built yet. Raises Problem."""
    images = _images(components)
    coredns = _load(_entry(_coredns_version(images)))
    return _parts(components, images, coredns) if coredns else None


def _parts(components: Components, images: Sequence[str], coredns: Path) -> Parts:
    of_kubernetes = [components.by_role[role] for role in _ROLES]
    executables = {part.role: part.path for part in of_kubernetes} | {_COREDNS: coredns}
    identity = " ".join((*(part.sha256 for part in of_kubernetes), coredns.parent.name, *images))
    return Parts(executables, images, identity)


def _images(components: Components) -> Sequence[str]:
    """Return the images that kubeadm names for the version of the control plane. Raises Problem."""
    version = components.kubernetes_version
    argv = [str(components.path(KUBEADM)), "config", "images", "list", f"--kubernetes-version={version}"]
    try:
        return proc.run(argv, timeout_s=_LIST_TIMEOUT_S).stdout.split()
    except proc.CommandFailed as failed:
        message = f"kubeadm does not list the images of {version}: {failed.output.strip()}"
        raise Problem(message, argv[0], "use kubeadm of the same minor version") from failed


def _coredns_version(images: Sequence[str]) -> str:
    """Return the version of CoreDNS that kubeadm deploys. Raises Problem."""
    for image in images:
        name, _colon, tag = image.rpartition(":")
        if name.endswith(f"/{_COREDNS}"):
            return tag
    raise Problem(f"kubeadm lists no image of {_COREDNS}", " ".join(images), "use another version")


def _coredns(version: str, report: Report) -> Path:
    """Return CoreDNS, from the cache or built now. Raises Problem."""
    entry = _entry(version)

    def build() -> None:
        go = kubernetes.go_for(kubernetes.recipe_dir(), report)
        report(f"building CoreDNS {version}: two minutes the first time, later runs take it from {entry}")
        with build_errors("CoreDNS", entry, lambda: "try again"), work_folder(entry) as folder:
            (folder / "entry").mkdir()
            packages = Packages("compiling CoreDNS: {} packages", 0, report)
            argv = [go, "install", "-v", "-trimpath", "-ldflags=-s -w", f"{_PACKAGE}@{version}"]
            env = go_environment() | {"GOBIN": str(folder / "entry")}
            proc.stream_lines(argv, packages, timeout_s=_BUILD_TIMEOUT_S, cwd=folder, env=env)

    return load_or_build(entry, _load, build, "another process is building CoreDNS", report)


def _entry(version: str) -> Path:
    """Return the path of the cache entry of CoreDNS, whether it exists or not."""
    return cache_dir() / _COREDNS / f"{version}-go{build_go_version(kubernetes.recipe_dir())}"


def _load(entry: Path) -> Path | None:
    executable = entry / _COREDNS
    return executable if os.access(executable, os.X_OK) else None
