"""Attachments that are asked for by hand, as the attach/detach controller asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from nodeproof.artifacts import csi
from nodeproof.checks.moments import became, removed
from nodeproof.faults.volumes import DRIVER, Volumes
from nodeproof.labs.client.lab import Lab
from nodeproof.model import window as windows
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.scenario import ask, volumes
from nodeproof.scenario.stage import Stage

ATTACHMENTS = "volumeattachments"
LIMIT_S = 60.0
COMMAND_LIMIT_S = 30.0
NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"power", "volumes"}))
_PATH = f"/apis/storage.k8s.io/v1/{ATTACHMENTS}"


def stage_of(lab: Lab, folder: Path) -> Stage:
    """A stage in a lab that has volumes; no other lab is tried."""
    if "volumes" not in lab.features:
        pytest.skip(f"a {lab.kind.name} lab has no volumes")
    csi.obtain(print)
    lab.clean(NEEDS)
    if "inotify" in (why := volumes().available(lab.fleet.machine(ATTACHER))):
        pytest.skip(why)
    return Stage(lab, folder, NEEDS, nullcontext)


def storage_of(lab: Lab) -> Iterator[Volumes]:
    """Volumes of which nothing is left."""
    yield volumes()
    lab.tidy()


def guests_only(lab: Lab) -> None:
    """Skip where a table knows nothing of how its machines are."""
    if "real-pods" not in lab.features:
        pytest.skip("a table knows nothing of how its machines are")


def the_other(lab: Lab, node: str) -> str:
    return next(name for name in lab.fleet.node_names() if name != node)


def ask_for(lab: Lab, claim: str, node: str) -> str:
    """Ask for a volume on a node as the controller does, and wait for nothing."""
    name = f"at-once-{claim}-{node}"
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": claim}}
    asked = {"metadata": {"name": name}, "spec": spec}
    lab.cluster.api.create(_PATH, asked)
    return name


def attach(stage: Stage, claim: str, node: str, status: Mapping[str, object]) -> str:
    """Ask for a volume on a node as the controller does, and wait for what shows."""
    name = f"by-hand-{claim}-{node}"
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": claim}}
    asked = ask("POST", _PATH, {"metadata": {"name": name}, "spec": spec})
    stage.do(asked)
    came = became(ATTACHMENTS, name, {"status": status})
    stage.wait_for(came.after(asked.begun, windows.prompt(LIMIT_S)))
    assert stage.find(came) is not None
    return name


def detach(stage: Stage, name: str) -> None:
    """Ask for the end of an attachment, and wait for it."""
    asked = ask("DELETE", f"{_PATH}/{name}")
    stage.do(asked)
    stage.wait_for(removed(ATTACHMENTS, name).after(asked.begun, windows.prompt(LIMIT_S)))
    assert stage.find(removed(ATTACHMENTS, name)) is not None


def end(lab: Lab, name: str) -> None:
    """Ask for the end of an attachment, and wait for nothing."""
    lab.cluster.api.delete(f"{_PATH}/{name}")


def shown(lab: Lab, name: str) -> Mapping[str, Any]:
    """The status of an attachment as it is now."""
    status: Mapping[str, Any] = lab.cluster.api.get(f"{_PATH}/{name}")["status"]
    return status


def is_attached(lab: Lab, name: str) -> bool:
    """Whether its status says so."""
    return bool(shown(lab, name)["attached"])


def why_not(lab: Lab, name: str) -> str:
    """Why it is not attached, as far as anybody has tried."""
    return str((shown(lab, name).get("attachError") or {}).get("message", ""))


def is_to_go(lab: Lab, name: str) -> bool:
    """Whether somebody asked for its end."""
    return "deletionTimestamp" in lab.cluster.api.get(f"{_PATH}/{name}")["metadata"]


def is_gone(lab: Lab, name: str) -> bool:
    """Whether there is no such attachment any more."""
    listed = lab.cluster.api.get(_PATH)["items"]
    return name not in {each["metadata"]["name"] for each in listed}
