"""Guests on a fake hypervisor, their image by a shell script as recipe, and machines of Vagrant."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from nodeproof import proc
from nodeproof.artifacts import image
from nodeproof.artifacts.components import Component, Components
from nodeproof.artifacts.image import golden_image, image_hash
from nodeproof.artifacts.kubeadm import Parts
from nodeproof.cache import unfinished
from nodeproof.labs.base.network import TRACKING
from nodeproof.labs.base.processes import EventLog, Processes, last_console_lines
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.kinds.libvirt import domain_xml, hypervisor, nodes, seed
from nodeproof.labs.kinds.libvirt.guests import Guests
from nodeproof.labs.kinds.vagrant.nodes import Vagrant
from nodeproof.model.problem import OutsideError, Problem
from tests.fakes import DOMAIN, domain_in, executable

# Guests: their ends, their joining, KVM, and snapshots taken and restored on a fake hypervisor.


@pytest.mark.parametrize(
    ("console", "shown"),
    [
        ("one\ntwo\nthree\n", "two\nthree"),
        ("", ""),
        ("boot\nKernel panic - not syncing\nCPU: 0\nRIP", "Kernel panic - not syncing\nCPU: 0"),
    ],
)
def test_last_console_lines_begin_at_a_panic(console: str, shown: str) -> None:
    assert last_console_lines(console, 2) == shown


SPEC = NodeSpec("node-1", 0, "zone-a", "1")


class FakeGuests(Guests):
    """Guests without machines."""

    def _make(self, spec: NodeSpec) -> None:
        self._specs[spec.name] = spec


@pytest.fixture
def fake_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGuests:
    for folder in ("disks", "nodes", "pki"):
        (tmp_path / folder).mkdir()
    monkeypatch.setattr(FakeGuests, "_seed_of", lambda *_: None)
    monkeypatch.setattr(hypervisor.Hypervisor, "refresh_volumes", lambda _self: None)
    lab: Any = SimpleNamespace(dir=tmp_path, lab="v-1")
    events = EventLog(tmp_path / "events.jsonl")
    parts = {"lab": lab, "memory": tmp_path, "events": events, "processes": Processes(tmp_path, events)}
    on: Any = SimpleNamespace(**parts, authority=None, kubelet=None)
    return FakeGuests(on)


def test_guest_can_join_after_a_failed_seed(
    fake_guests: FakeGuests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(home: Path, image: Path, _what: object) -> str:
        (home / "half").touch()
        image.touch()
        raise OutsideError("no space left on device")

    monkeypatch.setattr(seed, "make", full)
    with pytest.raises(OutsideError, match="no space"):
        fake_guests.join(SPEC)
    assert not list(tmp_path.glob("nodes/*"))
    assert not list(tmp_path.glob("disks/*"))
    monkeypatch.setattr(seed, "make", lambda *_: "key")
    fake_guests.join(SPEC)
    assert [path.name for path in tmp_path.glob("nodes/*")] == ["node-1"]


def test_lost_or_stopped_machine_is_no_longer_observed(tmp_path: Path) -> None:
    processes = Processes(tmp_path, EventLog(tmp_path / "events.jsonl"))
    for name in ("node-1", "node-2"):
        processes.set_external(name, 42)
    processes.record_external_end("node-1", "node-1", "lost its QEMU")
    assert set(processes.external_pids()) == {"node-2"}
    assert set(processes.died()) == {"node-1"}
    processes.set_external("node-2", None)
    assert not processes.external_pids()


SECTOR = 'case " $* " in *" -kernel "*) ;; *) exit 33 ;; esac'
QEMU = {
    "runs all": f"{SECTOR}; exit 0",
    "runs a sector and breaks off": f"{SECTOR}; echo 'KVM internal error. Suberror: 1' >&2; exec sleep 60",
    "runs a sector and refuses the kernel": f"{SECTOR}; exit 1",
    "runs nothing": "exit 1",
}
KVM_TIMEOUT_S = 5.0


@pytest.mark.parametrize(
    ("qemu", "expected"),
    [(QEMU["runs all"], True), *((script, False) for name, script in QEMU.items() if name != "runs all")],
    ids=list(QEMU),
)
def test_kvm_is_used_if_a_kernel_runs_on_it(
    qemu: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, device, kernel = (tmp_path / name for name in ("qemu-system-x86_64", "kvm", "vmlinuz"))
    executable(program, qemu)
    device.touch()
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(hypervisor, "DEVICE", device)
    began = time.monotonic()
    assert hypervisor.runs_on_kvm(tmp_path / "sector", kernel) is expected
    assert time.monotonic() - began < KVM_TIMEOUT_S
    assert hypervisor.runs_on_kvm(tmp_path / "sector", None) is (qemu != QEMU["runs nothing"])
    assert not (tmp_path / "sector").exists()


KEY = nodes.snapshot_key(DOMAIN, "QEMU 1")


@pytest.fixture
def shelf(tmp_path: Path) -> nodes.SnapshotStore:
    """Return an empty store."""
    return nodes.SnapshotStore(tmp_path, os.getuid(), os.getgid())


def _take(fresh: nodes.Snapshot) -> None:
    fresh.memory.write_bytes(b"memory")
    fresh.disk.write_bytes(b"disk")


def _take_half(fresh: nodes.Snapshot) -> None:
    fresh.memory.write_bytes(b"mem")
    raise OSError("no space left on device")


def test_snapshot_is_of_one_guest_in_any_lab_and_of_one_qemu() -> None:
    same = domain_in(Path("/other"), lab="p-222222", machine_id="2" * 32)
    assert nodes.snapshot_key(same, "QEMU 1") == KEY
    assert KEY.startswith("node-1-")
    others = [
        replace(DOMAIN, kvm=True),
        replace(DOMAIN, memory_mib=2048),
        replace(DOMAIN, name="node-2"),
        replace(DOMAIN, nics=[domain_xml.Nic("control", domain_xml.mac("control", 2), "c2")]),
        replace(DOMAIN, arguments=["ro"]),
        replace(DOMAIN, vcpus=4, numa_nodes=2),
    ]
    keys = {*(nodes.snapshot_key(other, "QEMU 1") for other in others), nodes.snapshot_key(DOMAIN, "QEMU 2")}
    assert len(keys - {KEY}) == len(others) + 1


def test_stored_snapshot_is_found_until_a_file_changes(shelf: nodes.SnapshotStore, tmp_path: Path) -> None:
    assert shelf.find(KEY) is None
    shelf.store(KEY, _take)
    os.utime(tmp_path / KEY, (0, 0))
    snapshot = shelf.find(KEY)
    assert snapshot is not None
    assert (snapshot.memory.read_bytes(), snapshot.disk.read_bytes()) == (b"memory", b"disk")
    assert time.time() - (tmp_path / KEY).stat().st_mtime < nodes.UNUSED_LIMIT_S, "it counts as used"
    snapshot.memory.write_bytes(b"mem")
    assert shelf.find(KEY) is None


def test_failed_snapshot_leaves_nothing_but_the_old_one(shelf: nodes.SnapshotStore, tmp_path: Path) -> None:
    (tmp_path / f".{KEY}.new-gone").mkdir()  # by a killed lab
    shelf.store(KEY, _take)
    with pytest.raises(OSError, match="no space"):
        shelf.store(KEY, _take_half)
    assert shelf.find(KEY) is not None
    assert [path.name for path in tmp_path.iterdir()] == [KEY]


def test_unfinished_snapshot_in_progress_is_not_swept(shelf: nodes.SnapshotStore, tmp_path: Path) -> None:
    half = tmp_path / f".{KEY}.new-gone"
    half.mkdir()
    with shelf.writing(KEY):
        assert unfinished(tmp_path) == []
    assert unfinished(tmp_path) == [half]


def test_only_unused_snapshots_are_pruned(shelf: nodes.SnapshotStore, tmp_path: Path) -> None:
    long_ago = time.time() - nodes.UNUSED_LIMIT_S - 60
    old, used, others = f"node-1-{'0' * 12}", f"node-1-{'0' * 11}1", f"node-12-{'0' * 11}2"
    for key in (old, used, others, KEY):
        shelf.store(key, _take)
    for key in (old, others, KEY):
        os.utime(tmp_path / key, (long_ago, long_ago))

    shelf.prune(KEY, "node-1")
    assert {path.name for path in tmp_path.iterdir()} == {used, others, KEY}


def test_snapshot_is_shared_for_reading_and_changed_by_one_lab(
    shelf: nodes.SnapshotStore, tmp_path: Path
) -> None:
    with shelf.reading(KEY), shelf.reading(KEY), pytest.raises(nodes.Busy), shelf.writing(KEY):
        pass
    (lock,) = tmp_path.glob(".*.lock")
    assert lock.stat().st_mode & 0o777 == 0o600
    with shelf.writing(KEY), pytest.raises(nodes.Busy), shelf.reading(KEY):
        pass
    with shelf.writing(KEY):
        pass


def test_snapshot_is_proven_until_it_is_replaced(shelf: nodes.SnapshotStore) -> None:
    shelf.mark_proven(KEY)
    assert not shelf.is_proven(KEY)
    shelf.store(KEY, _take)
    shelf.mark_proven(KEY)
    assert shelf.is_proven(KEY)
    assert shelf.find(KEY) is not None
    shelf.store(KEY, _take)
    assert not shelf.is_proven(KEY)


SETTLE_TIMEOUT_S, TIMEOUT_S = 0.5, 20.0


class Notes:
    """Domains whose guests settle at once, unless `says` is something else."""

    def __init__(self, console: Path) -> None:
        self.ran: list[str] = []
        self.says = nodes.SETTLED
        self._console = console

    def create(self, _xml: str) -> None:
        self.ran.append("create")
        with self._console.open("a") as console:
            console.write(f"{self.says}\n")

    def save(self, name: str, memory: Path) -> None:
        self.ran.append("save")
        memory.write_text(name and "good")

    def restore(self, memory: Path, _xml: str) -> None:
        assert memory.exists()
        self.ran.append("restore")

    def attach(self, _name: str, _device_xml: str) -> None:
        self.ran.append("attach")


@pytest.fixture
def domain(tmp_path: Path) -> domain_xml.Domain:
    return domain_in(tmp_path)


@pytest.fixture
def notes(domain: domain_xml.Domain) -> Notes:
    return Notes(domain.console)


@pytest.fixture
def restorer(tmp_path: Path, notes: Notes, monkeypatch: pytest.MonkeyPatch) -> nodes.Restorer:
    """Return a restorer with an empty store and a qemu-img that creates empty files."""
    tool = executable(tmp_path / "bin" / "qemu-img", 'for last in "$@"; do :; done\n: >"$last"')
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (tmp_path / "shelf").mkdir()
    shelf = nodes.SnapshotStore(tmp_path / "shelf", os.getuid(), os.getgid())
    return nodes.Restorer(
        cast(Any, notes), "QEMU 1", shelf, Path("/image"), EventLog(tmp_path / "events"), lambda _name: None
    )


def _steps(tmp_path: Path) -> list[str]:
    return [json.loads(line)["step"] for line in (tmp_path / "events").read_text().splitlines()]


def _memory(tmp_path: Path, key: str | None) -> Path:
    assert key is not None
    return tmp_path / "shelf" / key / "memory"


def test_guest_boots_into_a_new_snapshot_and_the_next_is_only_restored(
    restorer: nodes.Restorer, domain: domain_xml.Domain, notes: Notes, tmp_path: Path
) -> None:
    key = restorer.start(domain, SETTLE_TIMEOUT_S)
    assert notes.ran == ["create", "save", "restore", "attach"]
    assert _steps(tmp_path) == ["snapshot-taken", "restored"]
    assert _memory(tmp_path, key).read_text() == "good"
    notes.ran.clear()
    assert restorer.start(replace(domain, lab="p-2"), SETTLE_TIMEOUT_S) == key
    assert notes.ran == ["restore", "attach"]


def test_guest_that_does_not_settle_gets_no_snapshot(
    restorer: nodes.Restorer, domain: domain_xml.Domain, notes: Notes, tmp_path: Path
) -> None:
    domain.console.write_text(f"{nodes.SETTLED}\n")  # by an earlier boot
    notes.says = "still booting"
    assert restorer.start(domain, SETTLE_TIMEOUT_S) is None
    assert notes.ran == ["create", "attach"]
    assert _steps(tmp_path) == ["no-snapshot"]
    assert not list((tmp_path / "shelf").glob("*/memory"))


def test_guest_that_panics_at_boot_gets_no_snapshot(
    domain: domain_xml.Domain, notes: Notes, restorer: nodes.Restorer
) -> None:
    def panicked(name: str) -> None:
        raise Problem(f"{name} panicked while it booted", "lab", "its console follows")

    with pytest.raises(Problem, match="node-1 panicked"):
        replace(restorer, watch=panicked).start(domain, SETTLE_TIMEOUT_S)
    assert "save" not in notes.ran


def test_guest_does_not_wait_for_a_snapshot_of_another_lab(
    restorer: nodes.Restorer, domain: domain_xml.Domain, notes: Notes, tmp_path: Path
) -> None:
    key = restorer.start(domain, SETTLE_TIMEOUT_S)
    notes.ran.clear()
    other = nodes.SnapshotStore(tmp_path / "shelf", os.getuid(), os.getgid())
    with other.writing(str(key)), pytest.raises(nodes.Busy):
        restorer.start(domain, SETTLE_TIMEOUT_S)
    assert notes.ran == []


@pytest.mark.parametrize("proven", [True, False])
def test_only_a_snapshot_that_never_worked_is_discarded(
    restorer: nodes.Restorer, domain: domain_xml.Domain, tmp_path: Path, proven: bool
) -> None:
    memory = _memory(tmp_path, restorer.start(domain, SETTLE_TIMEOUT_S))
    if proven:
        restorer.snapshots.mark_proven(memory.parent.name)
    restorer.report_failure("node-1", memory.parent.name, "node-1 hangs at boot")
    assert memory.exists() is proven
    assert _steps(tmp_path)[-1] == "no-snapshot"


# The golden image's cache with a shell script as recipe, the recipe's own files, domain XML.


RECIPE = """\
echo "$1" >> "{calls}"
echo "image: making the disk"
echo "a tool's own words"
echo kernel > "$2/vmlinuz"
echo initrd > "$2/initrd.img"
echo disk > "$2/disk.qcow2"
for package in "linux-image-cloud-amd64 6.12-1" "linux-image-6.12.1-cloud-amd64 6.12-1" "runc 1.1.15"; do
  echo "$package" >> "$2/packages.txt"
done
"""


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fast recipe with its own cache."""
    folder = tmp_path / "recipe"
    (folder / "files").mkdir(parents=True)
    (folder / "build.sh").write_text(RECIPE.format(calls=tmp_path / "calls"))
    (folder / "files" / "config").write_text("one\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(image, "recipe_dir", lambda: folder)
    monkeypatch.setattr(image, "root_prefix", list[str])
    monkeypatch.setattr(image, "TOOLS", ("sh",))
    return folder


@pytest.fixture
def builds(tmp_path: Path) -> Callable[[], int]:
    """Return how often the recipe ran."""
    calls = tmp_path / "calls"
    return lambda: len(calls.read_text().splitlines()) if calls.exists() else 0


def _components(sha256: str = "aa") -> Components:
    kubelet = Component("kubelet", Path("/bin/sh"), "v1.36.3", sha256, "built")
    return Components("v1.36.3", MappingProxyType({"kubelet": kubelet}), True)


def test_image_is_built_once_with_its_facts(recipe: Path, builds: Callable[[], int]) -> None:
    messages: list[str] = []
    first = golden_image(_components(), messages.append)
    again = golden_image(_components(), messages.append)
    assert builds() == 1
    assert again == first
    assert first.disk.read_text() == "disk\n"
    assert first.facts["kernel"] == "6.12.1-cloud-amd64"
    assert first.facts["packages"]["runc"] == "1.1.15"
    assert first.facts["kubelet_version"] == "v1.36.3"
    assert [line for line in messages if line.startswith("image: ")] == ["image: making the disk"]
    assert "a tool's own words" not in messages


def test_kubeadm_machine_needs_an_image_with_its_parts(recipe: Path, builds: Callable[[], int]) -> None:
    script = recipe / "build.sh"
    script.write_text(
        f'{script.read_text()}[ -z "$3" ] || cat "$3/images.txt" "$3/coredns" >"$2/disk.qcow2"\n'
    )
    coredns = recipe / "coredns"
    coredns.write_text("an executable\n")
    disks = {
        golden_image(_components(), print, parts).disk.read_text()
        for parts in (None, *(Parts({"coredns": coredns}, [name], name) for name in ("one:1", "two:2")))
    }
    assert disks == {"disk\n", "one:1\nan executable\n", "two:2\nan executable\n"}
    assert builds() == 3


def test_recipe_and_kubelet_decide_the_hash_and_prose_does_not(recipe: Path) -> None:
    kubelet, other = (_components(sha256).by_role["kubelet"] for sha256 in ("aa", "bb"))
    before = image_hash(recipe, kubelet)
    assert image_hash(recipe, other) != before
    (recipe / "README.md").write_text("prose\n")
    assert image_hash(recipe, kubelet) == before
    (recipe / "files" / "config").write_text("two\n")
    changed = image_hash(recipe, kubelet)
    assert changed != before
    (recipe / "files" / "config").chmod(0o755)
    assert image_hash(recipe, kubelet) != changed


@pytest.mark.parametrize("change", ["rm vmlinuz", "rm initrd.img", "rm manifest.json", "echo >disk.qcow2"])
def test_changed_entry_is_rebuilt(recipe: Path, builds: Callable[[], int], change: str) -> None:
    golden = golden_image(_components(), print)
    proc.run(["sh", "-c", change], timeout_s=TIMEOUT_S, cwd=golden.disk.parent)
    assert golden_image(_components(), print).disk.read_text() == "disk\n"
    assert builds() == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [("the mirror is away", ".*"), ("write failed: No space left on device", "no space left")],
)
def test_failed_build_leaves_its_last_lines(recipe: Path, tmp_path: Path, words: str, message: str) -> None:
    (recipe / "build.sh").write_text(f'touch "$2/vmlinuz"; echo {words}; exit 7\n')
    with pytest.raises(Problem, match=message) as problem:
        golden_image(_components(), print)
    assert words in problem.value.detail
    entries = (tmp_path / "cache" / "nodeproof" / "images").iterdir()
    assert [entry for entry in entries if entry.suffix != ".lock"] == []


def test_recipe_gets_the_mirror_even_through_sudo(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    body = (recipe / "build.sh").read_text()
    (recipe / "build.sh").write_text('echo "image: from $NODEPROOF_DEBIAN_MIRROR"\n' + body)
    monkeypatch.setenv("NODEPROOF_DEBIAN_MIRROR", "file:/mirror")
    monkeypatch.setattr(image, "root_prefix", lambda: ["env", "-i", f"PATH={os.environ['PATH']}"])
    golden_image(_components(), messages.append)
    assert "image: from file:/mirror" in messages


def test_missing_tools_are_named(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "TOOLS", ("sh", "no-such-tool"))
    with pytest.raises(Problem, match="no-such-tool"):
        golden_image(_components(), print)


# The recipe's own files ---------------------------------------------------------------------------

FILES = image.recipe_dir() / "files"


def test_guests_track_connections_like_process_nodes() -> None:
    assert (FILES / "etc/nodeproof/track.nft").read_text() == TRACKING


# Domain XML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("printed", ["", "<lab/>", "error: metadata not found"])
def test_domain_without_metadata_has_no_owner(printed: str) -> None:
    assert domain_xml.parse_owner(printed) != domain_xml.owner("l-123456", "0" * 32)


def test_slots_above_255_have_unique_addresses() -> None:
    assert domain_xml.mac("data", 258) == "02:6e:70:01:01:02"
    with pytest.raises(KeyError):
        domain_xml.mac("storage", 1)


# Files and output between a Vagrant lab and Vagrant, without running it.


VAGRANT_SPEC = NodeSpec("node-1", 0, "zone-a", "0" * 32)


def test_tag_identifies_the_owner_of_a_machine() -> None:
    tag = domain_xml.tag_xml("p-000000", VAGRANT_SPEC.machine_id)
    assert domain_xml.parse_owner(tag) == f"p-000000 {VAGRANT_SPEC.machine_id}"


def test_vagrant_output_is_kept_even_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "vagrant", "echo $VAGRANT_DOTFILE_PATH $*; exit 3")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(proc.CommandFailed) as failed:
        Vagrant(tmp_path, tmp_path, tmp_path / "log").up(["node-1"])
    assert failed.value.status == 3
    line = f"{tmp_path}/machines up --provider=libvirt node-1"
    assert (tmp_path / "log").read_text() == f"$ vagrant up --provider=libvirt node-1\n{line}\n"
