"""The Vagrant box: files of its folder, with an image of a few bytes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nodeproof.artifacts.image import Image
from nodeproof.labs.kinds.libvirt import box
from nodeproof.model.problem import Problem

pytestmark = pytest.mark.skipif(shutil.which("mke2fs", path="/usr/sbin:/sbin") is None, reason="no mke2fs")


@pytest.fixture
def image(tmp_path: Path) -> Image:
    """Return an image of three small files."""
    folder = tmp_path / "abcdef012345"
    folder.mkdir()
    for name in ("vmlinuz", "initrd.img", "disk.qcow2"):
        (folder / name).write_text(name)
    return Image(folder / "vmlinuz", folder / "initrd.img", folder / "disk.qcow2", {})


@pytest.fixture(autouse=True)
def _no_hypervisor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "check_tools", lambda *_arguments: None)
    monkeypatch.setattr(box, "root_prefix", list[str])
    monkeypatch.setattr(box, "runs_on_kvm", lambda *_arguments: False)


def _build_messages(tmp_path: Path, image: Image) -> list[str]:
    messages: list[str] = []
    box.make(tmp_path / "box", image, messages.append)
    return messages


def test_private_keys_are_readable_by_their_owner_only(tmp_path: Path, image: Image) -> None:
    _build_messages(tmp_path, image)

    for file in ("ssh", "node-1/seed.img"):
        assert (tmp_path / "box" / file).stat().st_mode & 0o077 == 0
    assert not (tmp_path / "box" / "node-1" / "seed").exists()


def test_folder_that_libvirt_cannot_enter_is_named(tmp_path: Path, image: Image) -> None:
    tmp_path.chmod(0o700)

    assert any("cannot enter" in line and "chmod o+x" in line for line in _build_messages(tmp_path, image))


def test_older_box_is_replaced_but_foreign_files_are_not(tmp_path: Path, image: Image) -> None:
    _build_messages(tmp_path, image)
    _build_messages(tmp_path, image)
    letter = tmp_path / "box" / "node-1" / "letter"
    letter.write_text("mine")

    with pytest.raises(Problem, match=r"not part of a box.*node-1/letter"):
        _build_messages(tmp_path, image)

    assert letter.read_text() == "mine"


@pytest.mark.parametrize("name", ["settings.json", "nodeproof.box", "letter"])
def test_folder_without_our_mark_is_left_alone(tmp_path: Path, image: Image, name: str) -> None:
    """Many programs have a settings.json."""
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / name).write_text("mine")

    with pytest.raises(Problem, match=rf"not part of a box.*{name}"):
        _build_messages(tmp_path, image)

    assert (tmp_path / "box" / name).read_text() == "mine"


def test_link_in_a_box_is_not_followed(tmp_path: Path, image: Image) -> None:
    _build_messages(tmp_path, image)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "letter").write_text("mine")
    (tmp_path / "box" / "ssh").unlink()
    (tmp_path / "box" / "ssh").symlink_to(elsewhere)
    _build_messages(tmp_path, image)

    assert (elsewhere / "letter").read_text() == "mine"
    assert not (tmp_path / "box" / "ssh").is_symlink()
