"""The lock and the ledger of a cluster in one Lease, which everybody with a kubeconfig can see."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import NAMESPACE
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.ledger import FaultLedger, Open
from nodeproof.waiting import retry_on, wait_until

Json = Any
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
NAME = "lock"
LOCK = f"{LEASES}/{NAME}"
LEDGER = "nodeproof.dev/ledger"
"""The annotation with the open faults, each with its last step."""
EXPIRES_S = 30.0
"""How long a lock is valid after its last renewal (s)."""
_RENEW_PERIOD_S = EXPIRES_S / 6
_LOOK_PERIOD_S = 1.0
_WRITE_TIMEOUT_S = 10.0
"""How long a write is repeated while the API server does not answer (s)."""
_CONFLICT = 409


class _Changed(OutsideError):
    """The Lease was written by somebody else."""


class ClusterLock(FaultLedger):
    """One user's lock of a cluster, renewed until `release`, and the ledger of its open faults.

    A lock has expired if it is not renewed for `EXPIRES_S` by this process's clock: those of other machines
    may differ.
    """

    def __init__(self, api: Api, holder: str, where: str, report: Callable[[str], None]) -> None:
        self._api, self._holder, self._where, self._report = api, holder, where, report
        self._writing = threading.Lock()
        self._version = ""
        self._open: dict[str, Open] = {}
        self._is_held, self._taken_by = False, ""
        self._stopping = threading.Event()
        self._renewal = threading.Thread(target=self._renew, daemon=True)

    def take(self) -> None:
        """Take the lock, and read the faults that are open.

        Raises:
            Problem: Another process holds it, or it cannot be written.
            ApiError: The API server refuses or does not answer.
        """
        self._create()
        lease = self._unheld()
        self._version = str(lease["metadata"]["resourceVersion"])
        self._open = _open_faults(lease, self._where)
        try:
            self._save(self._open)
        except OSError as error:
            raise Problem(str(error), self._where, "run it again") from error
        self._is_held = True
        self._renewal.start()

    def check(self) -> None:
        """Raise Problem if another process has taken the lock, because it was not renewed in time."""
        if self._taken_by:
            step = "heal the open faults: nodeproof heal --cluster FILE"
            raise Problem(f"{self._taken_by} has taken the lock of the cluster", self._where, step)

    def release(self) -> None:
        """Release the lock, if it is held; open faults stay in the ledger."""
        if not self._is_held:
            return
        self._is_held = False
        self._stopping.set()
        self._renewal.join(_WRITE_TIMEOUT_S)
        with self._writing, contextlib.suppress(OSError):
            self._save(self._open, holder="")

    def write(self, step: str, fault: Mapping[str, Json]) -> None:
        """Store a fault's step. Raises OSError if the lock is lost or the API server does not store it."""
        with self._writing:
            faults = {**self._open, str(fault["id"]): Open(dict(fault), step)}
            if step == "closed":
                del faults[str(fault["id"])]
            self._save(faults)

    def unfinished(self) -> list[Open]:
        return list(self._open.values())

    def forget(self) -> None:
        """Do nothing: the cluster outlives the harness."""

    def _create(self) -> None:
        """Create the namespace and the Lease, unless they exist. Raises ApiError."""
        self._api.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        about = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": NAME}}
        self._api.ensure(LEASES, about)

    def _unheld(self) -> Json:
        """Return the Lease once nobody holds it. Raises Problem if its holder renews it, ApiError."""
        lease = self._api.get(LOCK)
        holder = _holder(lease)
        if not holder:
            return lease
        self._report(f"{holder} has the lock of the cluster; waiting {EXPIRES_S:g} s for it to expire")
        version = str(lease["metadata"]["resourceVersion"])
        newer = wait_until(lambda: self._newer_than(version), EXPIRES_S, _LOOK_PERIOD_S)
        if newer is None:
            return lease
        if _holder(newer):
            raise Problem(f"{_holder(newer)} is using the cluster", self._where, "wait until it ends")
        return newer

    def _newer_than(self, version: str) -> Json:
        """Return the Lease if it has changed, else None. Raises ApiError."""
        lease = self._api.get(LOCK)
        return None if str(lease["metadata"]["resourceVersion"]) == version else lease

    def _renew(self) -> None:
        """Renew the lock, and try again soon after a failure: a request that hangs takes half of its time."""
        period_s = _RENEW_PERIOD_S
        while not self._stopping.wait(period_s):
            period_s = _LOOK_PERIOD_S
            with self._writing, contextlib.suppress(OSError):
                self._save(self._open)
                period_s = _RENEW_PERIOD_S

    def _save(self, faults: dict[str, Open], holder: str | None = None) -> None:
        """Write the Lease with these open faults, while nobody else writes. Raises OSError."""
        name = self._holder if holder is None else holder
        try:
            retry_on(
                lambda: self._write(faults, name),
                ApiError,
                timeout_s=_WRITE_TIMEOUT_S,
                period_s=_LOOK_PERIOD_S,
            )
        except OutsideError as error:
            raise OSError(f"the ledger of the cluster cannot be written: {error}") from error
        self._open = faults

    def _write(self, faults: Mapping[str, Open], holder: str) -> None:
        """Write the Lease unless somebody else has. Raises ApiError, _Changed."""
        entries = [{"step": entry.step, "fault": dict(entry.fault)} for entry in faults.values()]
        metadata = {"resourceVersion": self._version, "annotations": {LEDGER: json.dumps(entries)}}
        now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        spec = {"holderIdentity": holder, "renewTime": now, "leaseDurationSeconds": int(EXPIRES_S)}
        try:
            lease = self._api.patch(LOCK, {"metadata": metadata, "spec": spec})
        except ApiError as error:
            if error.status != _CONFLICT:
                raise
            # A write without an answer may have been stored.
            lease = self._api.get(LOCK)
            if _holder(lease) != self._holder:
                self._taken_by = _holder(lease) or "another process"
                raise _Changed(f"{self._taken_by} has taken the lock") from error
            self._version = str(lease["metadata"]["resourceVersion"])
            raise
        self._version = str(lease["metadata"]["resourceVersion"])


def _holder(lease: Json) -> str:
    return str((lease.get("spec") or {}).get("holderIdentity") or "")


def _open_faults(lease: Json, where: str) -> dict[str, Open]:
    """Return the open faults of a Lease, oldest first. Raises Problem if they cannot be read."""
    text = (lease["metadata"].get("annotations") or {}).get(LEDGER, "[]")
    try:
        faults = [
            Open({**entry["fault"], "id": entry["fault"]["id"]}, str(entry["step"]))
            for entry in json.loads(text)
        ]
    except (ValueError, KeyError, TypeError) as error:
        step = f"undo the faults by hand, then remove the annotation {LEDGER}"
        raise Problem(
            f"the ledger cannot be read: {text[:200]}", f"{where}: Lease {NAMESPACE}/{NAME}", step
        ) from error
    return {str(entry.fault["id"]): entry for entry in faults}
