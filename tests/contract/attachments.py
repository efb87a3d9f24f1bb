"""Attachments requested by the test, like those of the attach/detach controller."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from nodeproof.artifacts import csi
from nodeproof.checks.moments import became, removed
from nodeproof.faults.providers import DRIVER, Volumes
from nodeproof.labs.client.handle import LabHandle
from nodeproof.model import window as windows
from nodeproof.model.needs import ATTACHER, Needs
from nodeproof.scenario import send_request, volumes
from nodeproof.scenario.lab import Lab

ATTACHMENTS = "volumeattachments"
TIMEOUT_S = 60.0
COMMAND_TIMEOUT_S = 30.0
NEEDS = Needs(faulted=1, components=(ATTACHER,), features=frozenset({"power", "volumes"}))
_PATH = f"/apis/storage.k8s.io/v1/{ATTACHMENTS}"


def stage_of(lab: LabHandle, folder: Path) -> Lab:
    """Return the stage of a lab that has volumes; skips other labs."""
    if "volumes" not in lab.features:
        pytest.skip(f"a {lab.kind.name} lab has no volumes")
    csi.obtain(print)
    lab.clean(NEEDS)
    if "inotify" in (why := volumes().available(lab.fleet.machine(ATTACHER))):
        pytest.skip(why)
    return Lab(lab, folder, NEEDS, nullcontext)


def storage_of(lab: LabHandle) -> Iterator[Volumes]:
    """Return volumes that are removed completely afterwards."""
    yield volumes()
    lab.tidy()


def guests_only(lab: LabHandle) -> None:
    """Skip the test if a table, which does not know the state of machines, is the backend."""
    if "real-pods" not in lab.features:
        pytest.skip("a table knows nothing of how its machines are")


def the_other(lab: LabHandle, node: str) -> str:
    return next(name for name in lab.fleet.node_names() if name != node)


def ask_for(lab: LabHandle, claim: str, node: str) -> str:
    """Request a volume on a node like the controller, without waiting."""
    name = f"at-once-{claim}-{node}"
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": claim}}
    body = {"metadata": {"name": name}, "spec": spec}
    lab.cluster.api.create(_PATH, body)
    return name


def attach(stage: Lab, claim: str, node: str, status: Mapping[str, object]) -> str:
    """Request a volume on a node like the controller, and wait for this status."""
    name = f"by-hand-{claim}-{node}"
    spec = {"attacher": DRIVER, "nodeName": node, "source": {"persistentVolumeName": claim}}
    request = send_request("POST", _PATH, {"metadata": {"name": name}, "spec": spec})
    stage.run(request)
    came = became(ATTACHMENTS, name, {"status": status})
    stage.wait_for(came.after(request.begun, windows.up_to(TIMEOUT_S)))
    assert stage.find(came) is not None
    return name


def detach(stage: Lab, name: str) -> None:
    """Delete an attachment, and wait for its end."""
    request = send_request("DELETE", f"{_PATH}/{name}")
    stage.run(request)
    stage.wait_for(removed(ATTACHMENTS, name).after(request.begun, windows.up_to(TIMEOUT_S)))
    assert stage.find(removed(ATTACHMENTS, name)) is not None


def end(lab: LabHandle, name: str) -> None:
    """Delete an attachment, without waiting."""
    lab.cluster.api.delete(f"{_PATH}/{name}")


def shown(lab: LabHandle, name: str) -> Mapping[str, Any]:
    """Return the current status of an attachment."""
    status: Mapping[str, Any] = lab.cluster.api.get(f"{_PATH}/{name}")["status"]
    return status


def is_attached(lab: LabHandle, name: str) -> bool:
    """Return whether its status has these values."""
    return bool(shown(lab, name)["attached"])


def why_not(lab: LabHandle, name: str) -> str:
    """Return its attachment error, if there was a try."""
    return str((shown(lab, name).get("attachError") or {}).get("message", ""))


def is_to_go(lab: LabHandle, name: str) -> bool:
    """Return whether its deletion was requested."""
    return "deletionTimestamp" in lab.cluster.api.get(f"{_PATH}/{name}")["metadata"]


def is_removed(lab: LabHandle, name: str) -> bool:
    """Return whether the attachment is removed."""
    listed = lab.cluster.api.get(_PATH)["items"]
    return name not in {attachment["metadata"]["name"] for attachment in listed}
