"""The golden image's cache with a shell script as recipe, the recipe's own files, domain XML."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from xml.etree import ElementTree as Tree

import pytest

from nodeproof.artifacts import image
from nodeproof.artifacts.components import Component, Components
from nodeproof.artifacts.image import golden_image, image_hash
from nodeproof.labs.base.network import TRACKING
from nodeproof.labs.kinds.libvirt.domain_xml import (
    METADATA_NAMESPACE,
    Domain,
    domain_xml,
    mac,
    network_xml,
    owner,
    parse_owner,
)
from nodeproof.model.problem import Problem
from tests.fakes import DOMAIN

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


def _images(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "nodeproof" / "images"


def _cache_entries(tmp_path: Path) -> list[str]:
    return sorted(file.name for file in _images(tmp_path).iterdir() if not file.name.endswith(".lock"))


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


def test_other_kubelet_needs_another_image(recipe: Path, builds: Callable[[], int]) -> None:
    one = golden_image(_components("aa"), print)
    other = golden_image(_components("bb"), print)
    assert one.disk != other.disk
    assert builds() == 2


def test_recipe_decides_the_hash_and_prose_does_not(recipe: Path) -> None:
    kubelet = _components().by_role["kubelet"]
    before = image_hash(recipe, kubelet)
    (recipe / "README.md").write_text("prose\n")
    assert image_hash(recipe, kubelet) == before
    (recipe / "files" / "config").write_text("two\n")
    changed = image_hash(recipe, kubelet)
    assert changed != before
    (recipe / "files" / "config").chmod(0o755)
    assert image_hash(recipe, kubelet) != changed


def test_modified_disk_is_rebuilt(recipe: Path, builds: Callable[[], int]) -> None:
    golden = golden_image(_components(), print)
    golden.disk.write_text("another disk\n")
    assert golden_image(_components(), print).disk.read_text() == "disk\n"
    assert builds() == 2


@pytest.mark.parametrize("lost", ["vmlinuz", "initrd.img", "disk.qcow2", "manifest.json"])
def test_entry_without_a_file_is_rebuilt(recipe: Path, builds: Callable[[], int], lost: str) -> None:
    golden = golden_image(_components(), print)
    (golden.disk.parent / lost).unlink()
    assert golden_image(_components(), print).kernel.is_file()
    assert builds() == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [("the mirror is away", ".*"), ("write failed: No space left on device", "no space left")],
)
def test_failed_build_leaves_nothing_and_shows_its_last_lines(
    recipe: Path, tmp_path: Path, words: str, message: str
) -> None:
    (recipe / "build.sh").write_text(f'touch "$2/vmlinuz"; echo {words}; exit 7\n')
    with pytest.raises(Problem, match=message) as problem:
        golden_image(_components(), print)
    assert words in problem.value.detail
    assert _cache_entries(tmp_path) == []


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


def test_guest_udev_rules_match_the_mac_addresses_of_domains() -> None:
    rules = (FILES / "etc/udev/rules.d/70-nodeproof.rules").read_text()
    for network in ("control", "data"):
        assert f'ATTR{{address}}=="{mac(network, 0)[:11]}:*", NAME="{network}"' in rules


# Domain XML ---------------------------------------------------------------------------------------


def _parsed(domain: Domain) -> Tree.Element:
    return Tree.fromstring(domain_xml(domain))  # noqa: S314  our own words


def test_domain_carries_its_lab_and_machine_id() -> None:
    tag = _parsed(DOMAIN).find(f"metadata/{{{METADATA_NAMESPACE}}}lab")
    assert tag is not None
    # As `virsh metadata` prints it: without the namespace.
    printed = f'<lab name="{tag.get("name")}" machine="{tag.get("machine")}"/>\n'
    assert parse_owner(printed) == owner("l-123456", "0" * 32)


@pytest.mark.parametrize("printed", ["", "<lab/>", "error: metadata not found"])
def test_domain_without_metadata_has_no_owner(printed: str) -> None:
    assert parse_owner(printed) != owner("l-123456", "0" * 32)


def test_network_carries_its_lab_and_uses_an_existing_bridge() -> None:
    root = Tree.fromstring(network_xml("control", "l-123456"))  # noqa: S314  our own words
    tag = root.find(f"metadata/{{{METADATA_NAMESPACE}}}lab")
    bridge = root.find("bridge")
    assert tag is not None
    assert tag.get("name") == "l-123456"
    assert bridge is not None
    assert bridge.get("name") == "control"


def test_slots_above_255_have_unique_addresses() -> None:
    assert mac("data", 258) == "02:6e:70:01:01:02"
    with pytest.raises(KeyError):
        mac("storage", 1)
