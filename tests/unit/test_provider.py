"""The labs that a worker holds: its own lab, and a zone of the shared lab or a lab in its place."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest

from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.leases import InUse
from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import Problem
from nodeproof.session.provider import LabOpener, LabProvider
from nodeproof.session.sharing import Retries, Retry, SharedLab, Throttle
from nodeproof.session.worker_lab import LabRequirements, OwnLab, SharedZone, WorkerLab
from tests.fakes import fake_lab
from tests.waiting import throughout

TIMEOUT_S, WAITING_S = 10.0, 1.2
SIZE, LARGE = Size(nodes=3, zones=1), Size(nodes=4, zones=1)


class Labs(LabOpener):
    """Opens labs without machines; `log` has what happened to them."""

    has_zones = True
    free_zones = 1
    is_zone_usable = True

    def __init__(self, run: Path) -> None:
        self.run = run
        self.log: list[str] = []

    def open(self, size: Size) -> WorkerLab:
        handle = self._handle("", {"down": self._logs("lab ended"), "tidy": self._logs("lab left")})
        return OwnLab(handle, size, self.run, self.log.append)

    def lease_zone(self) -> WorkerLab:
        if not self.free_zones:
            raise InUse("every zone is in use", "lab p-1", "use fewer workers")
        self.free_zones -= 1
        parts = {
            "close": self._logs("zone given back"),
            "leases.is_last": bool,
            "leases.disable_zone": self._logs("zone excluded"),
        }
        shared = SharedLab(self.run, lambda: self._handle("", {}))
        return SharedZone(self._handle("zone-a", parts), SIZE, self.run, self.log.append, shared=shared)

    def get_ready(self, lab: WorkerLab) -> None:
        if lab.part == "zone" and not self.is_zone_usable:
            raise Problem("nodes not ready", "lab p-1", "see its logs")
        self.log.append(f"{lab.part} ready")
        lab.is_ready = True

    def _logs(self, line: str) -> Callable[[], None]:
        return partial(self.log.append, line)

    def _handle(self, zone: str, parts: Mapping[str, object]) -> LabHandle:
        common = {
            "name": "p-1",
            "zone": zone,
            "is_prepared": False,
            "life.full_parts": list,
            "life.has_control_plane": lambda: True,
            # Such a lab cannot be resized.
            "safety.injector.quarantined": {"node-1"},
            "copy_logs": lambda _into: None,
            "fetch_journals": lambda: None,
            "tidy": lambda: None,
        }
        return fake_lab({**common, **parts})


def lab_requirements(size: Size = SIZE, *, is_alone: bool = False) -> LabRequirements:
    return LabRequirements(Needs(), size, is_alone)


@pytest.fixture
def labs(tmp_path: Path) -> Labs:
    return Labs(tmp_path)


@pytest.fixture
def retries(tmp_path: Path) -> Retries:
    return Retries(tmp_path)


@pytest.fixture
def provider(labs: Labs, retries: Retries, tmp_path: Path) -> LabProvider:
    return LabProvider(labs, Throttle(tmp_path, "a", 0), retries, labs.log.append)


def test_discarding_a_lab_does_not_block_starting_one(labs: Labs, retries: Retries, tmp_path: Path) -> None:
    running, starter = (Throttle(tmp_path, name, 4, read_pressure=lambda: 1.0) for name in "ab")
    running.start_scenario(lambda _line: None)
    started = threading.Event()

    def start() -> None:
        with starter.lab_start():
            started.set()

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    assert throughout(lambda: not started.is_set(), WAITING_S)
    LabProvider(labs, running, retries, print).discard()
    assert started.wait(TIMEOUT_S)
    thread.join(TIMEOUT_S)


def test_lab_whose_scenario_will_be_retried_is_kept_and_used_again(
    labs: Labs, provider: LabProvider, retries: Retries
) -> None:
    own = provider.get(lab_requirements(is_alone=True))
    retries.add_own(Retry("test_it", 1))
    zone = provider.get(lab_requirements())
    assert labs.log == ["lab ready", "lab left", "zone ready"]
    assert provider.get(lab_requirements(is_alone=True)) is own
    assert provider.get(lab_requirements()) is zone
    provider.end()
    assert labs.log[3:] == ["lab left", "lab ended", "zone given back"]


def test_lab_without_a_retry_ends_before_a_zone_is_used(labs: Labs, provider: LabProvider) -> None:
    provider.reserve_zone()
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements())
    assert (labs.log, labs.free_zones) == (["lab ready", "lab ended", "zone ready"], 0)


def test_lab_of_another_size_is_replaced_if_it_cannot_be_resized(labs: Labs, provider: LabProvider) -> None:
    provider.get(lab_requirements(is_alone=True))
    provider.get(lab_requirements(is_alone=True))
    lab = provider.get(lab_requirements(LARGE, is_alone=True))
    assert (lab.size, labs.log) == (LARGE, ["lab ready", "lab ended", "lab ready"])


def test_lab_in_place_of_a_zone_serves_all_scenarios(labs: Labs, provider: LabProvider) -> None:
    labs.free_zones = 0
    lab = provider.get(lab_requirements())
    assert labs.log == ["every zone is in use (lab p-1); starting a dedicated lab", "lab ready"]
    assert provider.get(lab_requirements()) is lab
    assert provider.get(lab_requirements(is_alone=True)) is lab


def test_unusable_zone_is_abandoned_for_a_lab(labs: Labs, provider: LabProvider) -> None:
    labs.is_zone_usable = False
    assert isinstance(provider.get(lab_requirements()), OwnLab)
    assert labs.log[1:] == ["zone excluded", "zone given back", "lab ready"]
