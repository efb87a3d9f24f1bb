"""Options of a run, and the capacity of a machine: labs, topologies, and numbers of workers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import capacity
from nodeproof.labs.base.spec import DEFAULT_SHAPE, Shape
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.labs.client import registry
from nodeproof.labs.client.starting import Entry, Topology
from nodeproof.labs.kinds import LIBVIRT, PROCESS
from nodeproof.labs.kinds.kind import Kind
from nodeproof.model.overrides import NO_OVERRIDES, Overrides, parse
from nodeproof.model.problem import Problem
from nodeproof.session import options as run_options
from nodeproof.session.options import Options, options_of, resolve
from tests.checkouts import commit, write_checkout

# Options of a run: its lab, its topology, and the default number of workers


DEFAULTS = {"lab": "libvirt", "nodes": 0, "zones": 0, "topology": "", "numprocesses": None, "dist": "no"}
INTERACTIVE = {"usepdb": False, "capture": "fd", "tx": []}


def config_with(**options: Any) -> Any:
    """Return a pytest configuration with these options and defaults for the others."""
    namespace = SimpleNamespace(**{**DEFAULTS, **INTERACTIVE, **options})
    return SimpleNamespace(
        stash=pytest.Stash(),
        option=namespace,
        getoption=lambda name, default=None: getattr(namespace, name, default),
    )


@pytest.fixture
def supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_options, "max_labs", lambda _kind, _shapes: (2, "two of them"))
    monkeypatch.setattr(run_options, "max_zones", lambda _kind, _nodes: (6, "six zones"))


@pytest.mark.usefixtures("supported")
def test_workers_default_to_the_number_of_virtual_labs(capsys: pytest.CaptureFixture[str]) -> None:
    config = config_with()
    run_options.set_default_workers(config)
    assert config.option.numprocesses == 2
    assert "2 workers (two of them)" in capsys.readouterr().err


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize(
    "options",
    [
        *({"lab": lab} for lab in ("", "p-0123ab")),
        *({"numprocesses": workers} for workers in (0, 3)),
        *({"tx": ["popen"]}, {"dist": "each"}, {"usepdb": True}, {"capture": "no"}),
    ],
)
def test_explicit_options_override_the_default(options: dict[str, Any]) -> None:
    config = config_with(**options)
    run_options.set_default_workers(config)
    assert config.option.numprocesses == options.get("numprocesses")


@pytest.mark.parametrize(("attributes", "labs"), [({"workerinput": {"workerid": "gw0"}}, 2), ({}, 1)])
def test_single_lab_needs_no_workers(attributes: Any, labs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_options, "max_labs", lambda _kind, _shapes: (labs, "no more memory"))
    config = SimpleNamespace(**vars(config_with()), **attributes)
    run_options.set_default_workers(cast("pytest.Config", config))
    assert config.option.numprocesses is None


@pytest.mark.usefixtures("supported")
@pytest.mark.parametrize(("requested", "is_warned"), [(3, True), (2, False), (None, False)])
def test_too_many_workers_for_the_machine_are_reported(
    requested: int | None, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    run_options.warn_of_excess_workers(config_with(numprocesses=requested))
    assert ("3 workers were requested, but this machine supports 2" in capsys.readouterr().err) is is_warned


@pytest.mark.parametrize("lab", ["libvirt", "process"])
def test_labs_are_counted_by_their_nodes(lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "five.yaml"
    file.write_text("nodes:\n" + "".join(f"  - {{ name: node-{n}, zone: zone-a }}\n" for n in range(5)))
    monkeypatch.setattr(run_options, "max_labs", lambda _kind, shapes: (len(shapes), "labs of them"))
    assert run_options.default_workers(config_with(lab=lab, topology=str(file))) == 5


LARGE, SMALL = Entry("big", "zone-b", Shape(memory_mib=2048, cpus=2)), Entry("small", "zone-a")
TOPOLOGY = Topology((LARGE, SMALL))


def test_run_has_the_nodes_of_its_topology() -> None:
    options = resolve(Options(LIBVIRT.name, topology=TOPOLOGY))
    assert (options.nodes, options.zones, options.spread, options.topology) == (2, 2, (1, 1), TOPOLOGY)
    with pytest.raises(Problem, match="topology file already sets"):
        resolve(Options(LIBVIRT.name, nodes=2, topology=TOPOLOGY))


@pytest.fixture
def status(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the status of the running lab `p-000001`."""
    node = NodeInfo("small", 0, "zone-a", True, "", "", "")
    status = SimpleNamespace(
        profile="fast", kubernetes_version="v1.36.3", nodes=[node], kind="process", overrides=NO_OVERRIDES
    )
    monkeypatch.setattr(registry, "running", lambda: ["p-000001"])
    monkeypatch.setattr(registry, "client", lambda _name: SimpleNamespace(status=lambda: status))
    return status


OWN, VERSIONS = parse(["A=true"], ["kubelet.maxPods=50"]), Overrides(node_versions=("v1.35.4",))
OLDER = Topology((replace(SMALL, kubelet_version="v1.35.4"),), "v1.36.3")
LARGER = Topology((replace(SMALL, shape=LARGE.shape),))


@pytest.mark.parametrize(
    ("own", "options"), [(VERSIONS, {"topology": OLDER}), (OWN, {}), (OWN, {"overrides": OWN})]
)
def test_run_has_the_settings_of_its_lab(status: Any, own: Overrides, options: dict[str, Any]) -> None:
    status.overrides = own
    assert resolve(Options("p-000001", **options)).overrides == own


@pytest.mark.parametrize(
    ("own", "options", "message"),
    [
        (OWN, {"overrides": parse(["A=false"], [])}, "--feature-gates A=false was given, .* runs --feature"),
        (NO_OVERRIDES, {"overrides": OWN}, "lab p-000001 runs without"),
        (
            NO_OVERRIDES,
            {"topology": OLDER},
            r"--node-versions v1\.35\.4 was given, lab p-000001 runs without",
        ),
        (NO_OVERRIDES, {"topology": LARGER}, "topology: small .*`nodeproof down --lab-name p-000001` first"),
        (NO_OVERRIDES, {"source": "/src"}, r"lab p-000001 has its executables \(--source\)"),
    ],
)
def test_running_lab_refuses_other_settings(
    status: Any, own: Overrides, options: dict[str, Any], message: str
) -> None:
    status.overrides = own
    with pytest.raises(Problem, match=message):
        resolve(Options("p-000001", **options))


@pytest.mark.usefixtures("status")
@pytest.mark.parametrize("lab", ["/some/path", "p-000000/zone", "vmware", "p-000000/"])
def test_unknown_lab_is_quoted_as_given(lab: str) -> None:
    with pytest.raises(Problem, match=f"unknown lab '{lab}' .* or a running lab \\(p-000001\\)"):
        resolve(Options(lab))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout of v1.36.1."""
    folder = write_checkout(tmp_path / "kubernetes")
    commit(folder, "v1.36.1")
    return folder


def test_run_has_version_and_name_of_its_checkout(checkout: Path) -> None:
    options = resolve(Options(LIBVIRT.name, profile="fast", source=str(checkout)))
    assert options.kubernetes_version == "v1.36.1"
    assert options.checkout is not None
    assert options.overrides.texts == (options.checkout.text,)
    assert options.profile_name != options.planned_name == "fast"


def test_worker_has_the_checkout_of_its_run_though_it_changed(checkout: Path) -> None:
    options = {
        "claim": [], "feature_gates": [], "set": [], "node_versions": "", "upgrade_to": "", "profile": "",
        "control_planes": 1, "kubernetes_version": "", "components": "build", "source": str(checkout),
    }  # fmt: skip
    config = config_with(**options)
    begun = options_of(config)
    assert begun.checkout is not None
    (checkout / "pkg/limits/limits.go").write_text("package limits\n")
    config.workerinput = {"workercount": 0, "nodeproof_checkout": asdict(begun.checkout)}
    assert options_of(config) == begun
    del config.workerinput
    assert options_of(config).checkout != begun.checkout


@pytest.mark.parametrize(
    ("options", "workers", "option"),
    [
        (Options(profile="fast"), 0, "--profile"),
        (Options(lab="libvirt"), 0, "--lab"),
        (Options(nodes=3), 0, "--nodes"),
        (Options(components="bin"), 0, "--components"),
        (Options(overrides=parse(["A=true"], [])), 0, "settings and versions"),
        (Options(), 2, "-n"),
    ],
)
def test_own_cluster_has_its_own_settings(options: Options, workers: int, option: str) -> None:
    with pytest.raises(Problem, match=f"has its own: .*{option}") as refused:
        resolve(replace(options, cluster="cluster.yaml"), workers)
    assert refused.value.where == "--cluster"


# Capacity of a machine for labs


Host = Callable[[int, int], None]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    """`host(cores, gib)`: have this many cores and this much available memory."""

    def become(cores: int, gib: int) -> None:
        memory = tmp_path / "meminfo"
        memory.write_text(f"MemTotal: 1 kB\nMemAvailable: {gib << 20} kB\n")
        monkeypatch.setattr(capacity, "_MEMORY_INFO", memory)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(cores)))

    return become


THREE = [DEFAULT_SHAPE] * 3


@pytest.mark.parametrize(
    ("kind", "shapes", "cores", "gib", "labs"),
    [
        (PROCESS, THREE, 2, 24, 3),
        (PROCESS, THREE, 8, 24, 12),
        (PROCESS, THREE, 8, 2, 2),
        (PROCESS, THREE, 1, 24, 1),
        (PROCESS, THREE, 2, 0, 1),
        (LIBVIRT, THREE, 2, 24, 2),
        (LIBVIRT, THREE, 16, 24, 4),
        (LIBVIRT, [DEFAULT_SHAPE, DEFAULT_SHAPE], 8, 32, 8),
        (LIBVIRT, [Shape(memory_mib=1280), DEFAULT_SHAPE], 8, 32, 8),
        (LIBVIRT, [Shape(memory_mib=6144), DEFAULT_SHAPE], 8, 32, 3),
        (LIBVIRT, [Shape(cpus=2), Shape(cpus=2)], 8, 32, 4),
    ],
)
def test_labs_are_limited_by_the_machine(
    host: Host, kind: Kind, shapes: list[Shape], cores: int, gib: int, labs: int
) -> None:
    host(cores, gib)
    at_once, reason = capacity.max_labs(kind, shapes)
    assert at_once == labs
    assert f"{cores} cores" in reason
    assert f"{gib:.1f} GiB of memory" in reason


@pytest.mark.parametrize(("cores", "gib", "nodes", "zones"), [(2, 24, 3, 6), (4, 2, 3, 4), (64, 99, 3, 33)])
def test_zones_are_limited_by_the_machine(host: Host, cores: int, gib: int, nodes: int, zones: int) -> None:
    host(cores, gib)
    at_once, reason = capacity.max_zones(PROCESS, nodes)
    assert at_once == zones
    assert f"{cores} cores" in reason


def test_missing_memory_information_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 1 kB\n")
    monkeypatch.setattr(capacity, "_MEMORY_INFO", memory)
    with pytest.raises(Problem, match="no MemAvailable"):
        capacity.available_mib()
