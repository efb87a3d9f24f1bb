"""The source of a lab's Kubernetes executables: built from `infra/kubernetes`, or supplied in a folder.

A build is stored under `${XDG_CACHE_HOME:-~/.cache}/nodeproof/components/<version>-<recipe>/`: one
executable, a link per role, and a manifest. The recipe's hash covers its sources: a changed recipe is another
entry, and an old entry is never wrong. A build from a checkout is `<version>-source-<hash>`, whose hash also
covers the checkout's content.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from nodeproof import proc
from nodeproof.artifacts.build import (
    BUILD,
    VERSION_TIMEOUT_S,
    Version,
    Work,
    build_errors,
    build_flags,
    build_go_version,
    find_go,
    go_environment,
    inputs_hash,
    required_go,
    tail,
)
from nodeproof.artifacts.checkout import Checkout, content_hash
from nodeproof.cache import Report, cache_dir, load_or_build, make_folder, work_folder
from nodeproof.hints import shipped
from nodeproof.model.claim import release
from nodeproof.model.overrides import NODE_VERSIONS_OPTION, SOURCE_OPTION, UPGRADE_OPTION
from nodeproof.model.problem import Problem
from nodeproof.model.versions import DEFAULT_KUBERNETES_VERSION, SUPPORTED_MINORS

ROLES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubeadm",
    "kubectl",
    "hollow-kubelet",
    "cloud-controller-manager",
)
HOLLOW = "hollow-kubelet"
CLOUD = "cloud-controller-manager"
PROXY = "kube-proxy"
KUBEADM = "kubeadm"

# A supplied folder may lack what no Kubernetes release ships, and what only one scenario needs. The
# cloud-controller-manager here contains nodeproof's own cloud provider, unlike that of a real cloud.
_OPTIONAL = ("etcd", HOLLOW, CLOUD, PROXY, KUBEADM)
_VERSION_ARGUMENTS: Mapping[str, Sequence[str]] = {
    "kubectl": ("version", "--client"),
    KUBEADM: ("version", "--output=short"),
}
"""The arguments that make an executable print its version, if not `--version`."""
_EXECUTABLE = "components"
_LIST_TIMEOUT_S = 60.0
_MANIFEST = "manifest.json"
_ADD_EXECUTABLES = "add it to this folder, or choose another folder with --components"


@dataclass(frozen=True)
class Component:
    """An executable: role, file, version as it reports it, SHA-256, and origin.

    The origin is `built`, `source` (built from a checkout) or `supplied`.
    """

    role: str
    path: Path
    version: str
    sha256: str
    origin: str

    def to_json(self) -> dict[str, str]:
        return {name: str(value) for name, value in asdict(self).items() if name != "role"}


@dataclass(frozen=True)
class Components:
    """Every executable that a lab runs.

    `hollow_from_tree` is False if the hollow kubelet's version differs from the version under test.
    """

    kubernetes_version: str
    by_role: Mapping[str, Component]
    hollow_from_tree: bool

    def path(self, role: str) -> Path:
        """Return the executable of `role`. Raises KeyError for a role that is not in ROLES."""
        return self.by_role[role].path


def obtain(source: str, version: str, report: Report) -> Components:
    """Return the executables of `source`: `build` for `version` built here, else a folder of executables.

    `report` is called with messages about slow steps. Raises Problem.
    """
    if source != BUILD:
        return _supplied(Path(source).expanduser().resolve(), report)
    return _built(Version.parse(version), report)


def go_for(recipe: Path, report: Report) -> str:
    """Return a Go command that builds a recipe; if PATH has none, the pinned one. Raises Problem."""
    return find_go(required_go((recipe / "go.mod").read_text()), recipe_dir(), report)


def obtain_from(checkout: Checkout, report: Report) -> Components:
    """Return the executables built from a checkout.

    Raises:
        Problem: It does not compile, or its content changed meanwhile.
    """
    version = Version.parse(checkout.version)
    inputs = (*_inputs(recipe_dir(), version), checkout.content)
    entry = cache_dir() / "components" / f"{version}-source-{inputs_hash(recipe_dir(), inputs)}"
    return _complete(str(version), _load_or_build(entry, version, report, checkout), report)


def cached(version: str) -> Components | None:
    """Return the cached build of Kubernetes `version`; never build it. Raises Problem."""
    parsed = Version.parse(version)
    by_role = _load(_entry(parsed))
    if by_role is None or by_role.keys() < set(ROLES):
        return None
    return Components(str(parsed), MappingProxyType(by_role), hollow_from_tree=True)


def supplied_version(source: str) -> str:
    """Return the version of the API server in a folder of executables. Raises Problem if it has none."""
    bin_dir = _bin_of(Path(source).expanduser().resolve())
    if not (bin_dir / "kube-apiserver").is_file():
        raise Problem("no executable kube-apiserver", str(bin_dir), _ADD_EXECUTABLES)
    return read_version("kube-apiserver", bin_dir / "kube-apiserver")


def tested_version(source: str, version: str, checkout: Checkout | None) -> str:
    """Return the version that a lab's control plane will have. Raises Problem."""
    if checkout or version:
        return checkout.version if checkout else version
    return DEFAULT_KUBERNETES_VERSION if source == BUILD else supplied_version(source)


def newest_patches(report: Report) -> tuple[str, ...]:
    """Return the newest published patch of each supported minor, oldest minor first.

    Raises:
        Problem: There is no Go, or the module proxy cannot be asked.
    """
    folder, module = cache_dir(), "k8s.io/kubernetes"
    make_folder(folder)
    argv = [go_for(recipe_dir(), report), "list", "-m", "-versions", module]
    try:
        listed = proc.run(argv, timeout_s=_LIST_TIMEOUT_S, cwd=folder, env=go_environment()).stdout
    except proc.CommandFailed as failed:
        message, next_step = "the versions of Kubernetes cannot be listed", "check GOPROXY and the network"
        raise Problem(message, module, next_step, tail(failed.output)) from failed
    # Go lists versions in their order.
    versions = listed.split()[1:]
    newest = {parsed.minor: text for text in versions if "-" not in (parsed := Version.parse(text)).rest}
    return tuple(newest[minor] for minor in SUPPORTED_MINORS if minor in newest)


def recipe_dir() -> Path:
    """Return the Go module's folder, in a checkout or the installed package. Raises Problem."""
    return shipped("infra/kubernetes/go.mod").parent


def recipe_hash(recipe: Path, version: str) -> str:
    """Return 12 hex digits over all inputs of a build of `version`."""
    return inputs_hash(recipe, _inputs(recipe, Version.parse(version)))


def _inputs(recipe: Path, version: Version) -> tuple[str, ...]:
    """Return all inputs of a build besides its sources."""
    return str(version), build_go_version(recipe), *build_flags(version)


# The cache of builds ------------------------------------------------------------------------------


def _built(version: Version, report: Report) -> Components:
    return _complete(str(version), _load_or_build(_entry(version), version, report), report)


def _load_or_build(
    entry: Path, version: Version, report: Report, checkout: Checkout | None = None
) -> Mapping[str, Component]:
    """Return the components of a cache entry, which is built first if it does not exist. Raises Problem."""
    build = partial(_build, version, entry, report, checkout)
    return load_or_build(entry, _load, build, "another process is building", report)


def _complete(version: str, by_role: Mapping[str, Component], report: Report) -> Components:
    """Return components with those of the default version for the roles that they lack. Raises Problem."""
    complete = by_role
    if by_role.keys() < set(ROLES):
        complete = {**_built(Version.parse(DEFAULT_KUBERNETES_VERSION), report).by_role, **by_role}
    return Components(version, MappingProxyType(complete), hollow_from_tree=HOLLOW in by_role)


def _entry(version: Version) -> Path:
    """Return the path of that version's cache entry, whether it exists or not."""
    return cache_dir() / "components" / f"{version}-{recipe_hash(recipe_dir(), str(version))}"


def _load(entry: Path) -> dict[str, Component] | None:
    """Return a cache entry's components; None if there is none or its executable has changed."""
    executable = entry / "bin" / _EXECUTABLE
    try:
        manifest = json.loads((entry / _MANIFEST).read_text())
        stat = executable.stat()
        same = (stat.st_size, stat.st_mtime_ns) == (manifest["size"], manifest["mtime_ns"])
        if not same and _sha256(executable) != manifest["sha256"]:
            return None
        versions: Mapping[str, str] = manifest["versions"]
        origin = manifest.get("origin", "built")
        return {
            role: Component(role, entry / "bin" / role, versions[role], manifest["sha256"], origin)
            for role in manifest["roles"]
        }
    except (OSError, ValueError, KeyError):
        return None


def _build(version: Version, entry: Path, report: Report, checkout: Checkout | None) -> None:
    """Make a cache entry, completely or not at all. The caller holds its lock. Raises Problem."""
    name = f"Kubernetes {version}" + (f" of {checkout.folder}" if checkout else "")
    next_step = (lambda: "correct the checkout") if checkout else partial(_next_step, report)
    with build_errors(name, entry, next_step), work_folder(entry) as folder:
        report(f"building {name}: some minutes the first time, later runs take it from {entry}")
        fresh, began_t = folder / "entry", time.monotonic()
        work = Work(folder, version, report)
        work.copy_recipe(recipe_dir())
        if checkout:
            work.use_checkout(Path(checkout.folder))
        else:
            work.adapt()
        work.compile(fresh / "bin" / _EXECUTABLE)
        if checkout and content_hash(Path(checkout.folder)) != checkout.content:
            message = "the checkout changed while it was built"
            raise Problem(message, f"{SOURCE_OPTION} {checkout.folder}", "try again")
        _finish(fresh, version, work, "source" if checkout else "built")
        report(f"built {name} in {time.monotonic() - began_t:.0f} s")


def _next_step(report: Report) -> str:
    """Return the next step after a failed build: the versions that there are, if they can be listed."""
    versions = [DEFAULT_KUBERNETES_VERSION]
    with contextlib.suppress(Problem):
        versions = [*newest_patches(report)] or versions
    return f"use {' or '.join(versions)}, or supply a folder with executables"


def _finish(entry: Path, version: Version, work: Work, origin: str) -> None:
    """Write the links and the manifest of an entry whose executable is built."""
    executable = entry / "bin" / _EXECUTABLE
    roles = [role for role in ROLES if role not in work.omitted_roles]
    for role in roles:
        (executable.parent / role).symlink_to(_EXECUTABLE)
    stat = executable.stat()
    manifest = {
        "kubernetes_version": str(version),
        "go_version": work.go_version(),
        "origin": origin,
        "roles": roles,
        "versions": {role: read_version(role, executable.parent / role) for role in roles},
        "sha256": _sha256(executable),
        "size": stat.st_size,
        "mtime_ns": stat.st_mtime_ns,
    }
    (entry / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Supplied executables -----------------------------------------------------------------------------


def _bin_of(folder: Path) -> Path:
    return folder / "bin" if (folder / "bin" / "kube-apiserver").exists() else folder


def _supplied(folder: Path, report: Report) -> Components:
    """Return the executables in `folder`, or in its `bin`, by name."""
    bin_dir = _bin_of(folder)
    paths = {role: bin_dir / role for role in ROLES}
    present = {role: path for role, path in paths.items() if os.access(path, os.X_OK) and path.is_file()}
    lacking = [role for role in ROLES if role not in present]
    if missing := [role for role in lacking if role not in _OPTIONAL]:
        raise Problem(f"no executable {', '.join(missing)}", str(bin_dir), _ADD_EXECUTABLES)
    hashes = {path: _sha256(path) for path in {path.resolve() for path in present.values()}}
    by_role = {
        role: Component(role, path, read_version(role, path), hashes[path.resolve()], "supplied")
        for role, path in present.items()
    }
    if lacking:
        report(f"{bin_dir} has no {' and no '.join(lacking)}: using nodeproof's own")
    complete = _complete(by_role["kube-apiserver"].version, by_role, report)
    # A multi-call binary is one build; two files of the same version may be from different trees.
    from_tree = HOLLOW in by_role and by_role[HOLLOW].sha256 == by_role["kubelet"].sha256
    return replace(complete, hollow_from_tree=from_tree)


def read_version(role: str, path: Path) -> str:
    """Return the version that an executable reports, `v1.36.3` (etcd: `3.6.8`). Raises Problem."""
    arguments = _VERSION_ARGUMENTS.get(role, ("--version",))
    try:
        output = proc.run([str(path), *arguments], timeout_s=VERSION_TIMEOUT_S).stdout
    except proc.CommandFailed as failed:
        next_step = "supply an executable for this machine"
        raise Problem(f"{role} does not run", str(path), next_step, tail(failed.output)) from failed
    match = re.search(r"v?\d+\.\d+\.\d+[-+.\w]*", output)
    if match is None:
        next_step = f"supply an executable whose {arguments[0]} prints it"
        raise Problem(f"{role} does not report its version", str(path), next_step, output)
    return match[0]


_OLDEST = 3
"""How many minors a kubelet may be older than its API server."""


def parse_node_versions(text: str) -> tuple[str, ...]:
    """Parse a list such as `v1.36.3,v1.37.2`; an empty text is an empty list. Raises Problem."""
    return tuple(
        str(Version.parse(part.strip(), NODE_VERSIONS_OPTION)) for part in filter(None, text.split(","))
    )


def check_skew(api_server: str, node_versions: tuple[str, ...], where: str = NODE_VERSIONS_OPTION) -> None:
    """Check that an API server of one version supports kubelets of the others, which `where` sets.

    The rules, also those of upgrades: https://kubernetes.io/releases/version-skew-policy/, sections "kubelet"
    and "Supported component upgrade order".

    Raises:
        Problem: A kubelet is newer than the API server, or too old for it.
    """
    if not node_versions:
        return
    minor = release(api_server).minor
    supported = f"the version skew policy allows kubelets of 1.{minor - _OLDEST} to 1.{minor}"
    for version in node_versions:
        age = minor - release(version).minor
        if 0 <= age <= _OLDEST:
            continue
        relation = "newer than" if age < 0 else f"more than {_OLDEST} minor versions older than"
        message = f"kubelet {version} is {relation} kube-apiserver {api_server}"
        raise Problem(message, where, supported)


def obtain_others(
    node_versions: tuple[str, ...], role: str, components: Components, report: Report
) -> Mapping[str, Components]:
    """Return the executables of each version that is not the lab's own; nodes run that of `role`.

    Raises Problem.
    """
    others = {}
    for version in sorted({*node_versions} - {components.kubernetes_version}):
        built = obtain(BUILD, version, report)
        if role == HOLLOW and not built.hollow_from_tree:
            message = f"the kubelet of process nodes does not compile with Kubernetes {version}"
            raise Problem(message, NODE_VERSIONS_OPTION, "choose another version")
        others[version] = built
    return others


def upgrade_version(upgrade_to: str) -> str:
    """Return the version of `--upgrade-to`: itself, or of a folder with executables. Raises Problem."""
    if _is_folder(upgrade_to):
        return supplied_version(upgrade_to)
    return str(Version.parse(upgrade_to, UPGRADE_OPTION))


def check_upgrade(api_server: str, upgrade_to: str, node_versions: tuple[str, ...]) -> None:
    """Check that a control plane, and nodes that stay as they are, support an upgrade.

    Raises:
        Problem: The upgrade leads to no newer version or skips a minor, or a kubelet is too old for it.
    """
    if not upgrade_to:
        return
    newer = upgrade_version(upgrade_to)
    old, new = release(api_server), release(newer)
    is_patch = new.minor == old.minor and new.micro > old.micro
    if not is_patch and new.minor != old.minor + 1:
        supported = f"the version skew policy allows a newer patch of 1.{old.minor}, or 1.{old.minor + 1}"
        raise Problem(f"kube-apiserver {api_server} cannot be upgraded to {newer}", UPGRADE_OPTION, supported)
    check_skew(newer, node_versions)


def obtain_upgrade(upgrade_to: str, report: Report) -> Components | None:
    """Return the executables of `--upgrade-to`; None without it. Raises Problem."""
    if not upgrade_to:
        return None
    return obtain(upgrade_to, "", report) if _is_folder(upgrade_to) else obtain(BUILD, upgrade_to, report)


def _is_folder(upgrade_to: str) -> bool:
    return len(Path(upgrade_to).parts) > 1
