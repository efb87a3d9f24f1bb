"""The golden image of virtual machine labs: built from `infra/image`, and cached.

An image is stored under `${XDG_CACHE_HOME:-~/.cache}/nodeproof/images/<hash>/`: kernel, initial RAM disk,
disk and a manifest with the version of every package in it. The hash covers the recipe, the kubelet and, for
a machine of a kubeadm cluster, its other parts: a changed recipe is another entry, and an old entry is never
wrong.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nodeproof import proc
from nodeproof.artifacts.build import tail
from nodeproof.artifacts.components import Component, Components
from nodeproof.artifacts.kubeadm import Parts
from nodeproof.cache import Report, StepProgress, cache_dir, load_or_build, time_left
from nodeproof.hints import MACHINES, hint_for, shipped
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem
from nodeproof.root import check_tools, root_prefix

KERNEL_ARGUMENTS = (
    "root=LABEL=NPROOT",
    "rw",
    "console=ttyS0",
    "loglevel=4",
    "mitigations=off",
    "tsc=nowatchdog",
    "net.ifnames=0",
)
"""The arguments of the image's kernel, on any hypervisor."""

_KERNEL, _INITRD, _DISK, _MANIFEST = "vmlinuz", "initrd.img", "disk.qcow2", "manifest.json"
_PACKAGES = "packages.txt"
TOOLS = ("mmdebstrap", "mke2fs", "qemu-img", "apt-get")
_MIRRORS = ("NODEPROOF_DEBIAN_MIRROR", "NODEPROOF_DEBIAN_SECURITY_MIRROR")
_BUILD_TIMEOUT_S = 1800.0
_REMOVE_TIMEOUT_S = 120.0
_USUAL_S = 210.0
"""How long a first build usually takes (s)."""
# Documentation beside the recipe does not affect the build.
_PROSE = (".md",)


@dataclass(frozen=True)
class Image:
    """A bootable guest: kernel, initial RAM disk, and a disk, which is only ever the base of overlays.

    `facts` are the versions of kubelet, kernel and all packages, its size in bytes and the build's duration.
    """

    kernel: Path
    initrd: Path
    disk: Path
    facts: Mapping[str, Json]

    @property
    def snapshots(self) -> Path:
        """The folder of this image's snapshots, which is removed with the image."""
        return self.disk.parent / "snapshots"


def golden_image(components: Components, report: Report, parts: Parts | None = None) -> Image:
    """Return the guest with that kubelet, from the cache or built now, which takes minutes.

    Args:
        components: contain the kubelet.
        report: called with messages about slow steps.
        parts: what a machine of a kubeadm cluster has more.

    Raises Problem.
    """
    entry = _entry(components, parts)
    build = partial(_build, recipe_dir(), components.by_role["kubelet"], parts, entry, report)
    return load_or_build(entry, _load, build, "another process builds this image", report)


def cached(components: Components, parts: Parts | None = None) -> Image | None:
    """Return the guest with that kubelet from the cache; never build it. Raises Problem."""
    return _load(_entry(components, parts))


def cached_kernel() -> Path | None:
    """Return the kernel of any image in the cache."""
    return next(iter(sorted((cache_dir() / "images").glob("*/vmlinuz"))), None)


def recipe_dir() -> Path:
    """Return the recipe's folder, in a checkout or else in the installed package. Raises Problem."""
    return shipped("infra/image/build.sh").parent


def image_hash(recipe: Path, kubelet: Component, parts: Parts | None = None) -> str:
    """Return 12 hex digits over all inputs of a build, except the mirror's package versions."""
    digest = hashlib.sha256(f"{kubelet.sha256}{parts.identity if parts else ''}".encode())
    for file in sorted(recipe.rglob("*")):
        if file.is_file() and file.suffix not in _PROSE:
            executable = file.stat().st_mode & 0o100
            digest.update(f"\0{file.relative_to(recipe)}\0{executable}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _entry(components: Components, parts: Parts | None) -> Path:
    """Return the path of the cache entry of the guest with that kubelet, whether it exists or not."""
    return cache_dir() / "images" / image_hash(recipe_dir(), components.by_role["kubelet"], parts)


def _load(entry: Path) -> Image | None:
    """Return a cache entry; None if there is none or its disk is not the one that was built."""
    try:
        manifest: dict[str, Json] = json.loads((entry / _MANIFEST).read_text())
        stat = (entry / _DISK).stat()
        if [stat.st_size, stat.st_mtime_ns] != manifest["disk"]:
            return None
        if not all((entry / file).is_file() for file in (_KERNEL, _INITRD)):
            return None
        facts: Mapping[str, Json] = manifest["facts"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Image(entry / _KERNEL, entry / _INITRD, entry / _DISK, facts)


def _build(recipe: Path, kubelet: Component, parts: Parts | None, entry: Path, report: Report) -> None:
    """Make a cache entry, completely or not at all. The caller holds its lock. Raises Problem."""
    root = root_prefix()
    check_tools(TOOLS, "guest image", hint_for(MACHINES))
    _remove(root, sorted(entry.parent.glob(f".{entry.name}.build-*")))
    expected_s = _last_took_s(entry.parent)
    report(f"building the guest image: {time_left(expected_s)}, later runs take it from {entry}")
    fresh = Path(tempfile.mkdtemp(prefix=f".{entry.name}.build-", dir=entry.parent))
    try:
        # The package manager's own user works below this folder.
        fresh.chmod(0o755)
        began = time.monotonic()
        arguments = [str(kubelet.path.resolve()), str(fresh)]
        if parts:
            arguments.append(str(_write_parts(fresh / "work" / "parts", parts)))
        _run_recipe(root, recipe, arguments, expected_s, report)
        _write_manifest(fresh, kubelet, time.monotonic() - began)
        shutil.rmtree(entry, ignore_errors=True)
        fresh.rename(entry)
    except OSError as error:
        next_step = "free some space (4 GB), then try again"
        raise Problem(f"the image cannot be stored: {error}", str(entry), next_step) from error
    finally:
        _remove(root, [fresh])


def _write_parts(folder: Path, parts: Parts) -> Path:
    """Write the folder that `build.sh` takes a cluster's parts from; return it. Raises OSError."""
    folder.mkdir(parents=True)
    for name, path in parts.executables.items():
        (folder / name).symlink_to(path.resolve())
    (folder / "images.txt").write_text("\n".join((*parts.images, "")))
    return folder


def _last_took_s(images: Path) -> float:
    """Return how long the last build took (s), or else how long builds usually take."""
    manifests = sorted(images.glob(f"*/{_MANIFEST}"), key=lambda path: path.stat().st_mtime)
    built = (image for path in reversed(manifests) if (image := _load(path.parent)))
    return next((float(image.facts["built_in_s"]) for image in built), _USUAL_S)


def _run_recipe(
    root: list[str], recipe: Path, arguments: list[str], expected_s: float, report: Report
) -> None:
    """Run `build.sh`, whose second argument is the new folder. Raises Problem with its last lines."""
    # sudo passes no variable on.
    mirrors = [f"{name}={os.environ[name]}" for name in _MIRRORS if name in os.environ]

    progress = StepProgress(report)

    def report_own(line: str) -> None:
        """Report the recipe's own lines; those of the tools that it runs only show that it goes on."""
        if line.startswith("image: "):
            report(line)
        progress.tick("building the guest image", progress.elapsed_s, expected_s)

    argv = [*root, "env", *mirrors, "nice", "bash", str(recipe / "build.sh"), *arguments]
    try:
        proc.stream_lines(argv, report_own, timeout_s=_BUILD_TIMEOUT_S)
    except proc.CommandFailed as failed:
        raise _explain(failed, Path(arguments[1])) from failed


def _explain(failed: proc.CommandFailed, where: Path) -> Problem:
    """Return the user's view of a failed build."""
    detail = tail(failed.output)
    if failed.status is None:
        return Problem(f"building took over {_BUILD_TIMEOUT_S:g} s", str(where), "try again", detail)
    if "No space left on device" in failed.output:
        return Problem("no space left while building", str(where), "free some space (4 GB)", detail)
    return Problem("building the guest image failed", str(where), "the last lines follow", detail)


def _remove(root: list[str], folders: list[Path]) -> None:
    """Remove what a build left, which may be owned by root."""
    if folders:
        argv = [*root, "rm", "-rf", "--one-file-system", "--", *map(str, folders)]
        proc.run(argv, timeout_s=_REMOVE_TIMEOUT_S, check=False)


def _write_manifest(fresh: Path, kubelet: Component, took_s: float) -> None:
    packages = dict(re.findall(r"^(\S+) (\S+)$", (fresh / _PACKAGES).read_text(), re.MULTILINE))
    kernels = [name for name in packages if name.startswith("linux-image-") and name[12:13].isdigit()]
    stat = (fresh / _DISK).stat()
    facts = {
        "kubelet_version": kubelet.version,
        "kubelet_sha256": kubelet.sha256,
        "kernel": kernels[0].removeprefix("linux-image-") if kernels else "",
        "packages": packages,
        "disk_bytes": stat.st_size,
        "built_in_s": round(took_s, 1),
    }
    manifest = {"facts": facts, "disk": [stat.st_size, stat.st_mtime_ns]}
    (fresh / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    (fresh / _PACKAGES).unlink()
