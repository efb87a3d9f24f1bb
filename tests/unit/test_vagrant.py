"""Files and output between a Vagrant lab and Vagrant, without running it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from nodeproof import proc
from nodeproof.labs.base.spec import LabSpec, NodeSpec, Shape
from nodeproof.labs.kinds import VAGRANT
from nodeproof.labs.kinds.libvirt.domain_xml import card_xml, leased_network_xml, mac, parse_owner, tag_xml
from nodeproof.labs.kinds.vagrant.nodes import Settings, Vagrant, read_ssh_config

SPEC = NodeSpec("node-1", 0, "zone-a", "0" * 32)
SSH_CONFIG = """\
Host node-1
  HostName 10.78.1.1
  User root
  Port 22
  UserKnownHostsFile "/run/it/known_hosts"
  StrictHostKeyChecking yes
  IdentityFile "/run/it/a folder/ssh"
  LogLevel FATAL

Host node-2
  HostName 10.78.1.2
"""
DESCRIBED = """\
<domain type='qemu'><devices>
  <interface type='network'><mac address='02:6e:70:00:00:00'/><source network='control'/></interface>
  <interface type='bridge'>
    <mac address='02:6e:70:01:00:00'/><source bridge='data'/><link state='down'/>
  </interface>
</devices></domain>
"""


@pytest.fixture
def lab(tmp_path: Path) -> LabSpec:
    """Return a lab with a key, and an image of a few bytes."""
    image = tmp_path / "abcdef012345"
    image.mkdir()
    files = {role: image / role for role in ("disk", "kernel", "initrd")}
    for file in files.values():
        file.write_text(file.name)
    guest = {**{role: str(file) for role, file in files.items()}, "arguments": "quiet"}
    return LabSpec("p-000000", 0, 0, "v1.36.3", {}, True, "", "fast", (SPEC,), False, VAGRANT.name, guest)


def test_addresses_are_read_from_the_vagrant_ssh_config() -> None:
    assert read_ssh_config(SSH_CONFIG) == {"node-1": "10.78.1.1", "node-2": "10.78.1.2"}


@pytest.mark.parametrize("state", ["up", "down"])
def test_only_the_link_state_of_one_card_is_changed(state: str) -> None:
    element = Tree.fromstring(card_xml(DESCRIBED, mac("data", 0), state))  # noqa: S314
    attributes = element.find("source"), [link.get("state") for link in element.findall("link")]
    assert attributes[0] is not None and attributes[0].get("bridge") == "data"
    assert attributes[1] == [state]
    with pytest.raises(ValueError, match="no network card"):
        card_xml(DESCRIBED, mac("data", 7), state)


def test_tag_identifies_the_owner_of_a_machine() -> None:
    assert parse_owner(tag_xml("p-000000", SPEC.machine_id)) == f"p-000000 {SPEC.machine_id}"


def test_each_card_is_leased_its_own_address() -> None:
    network = Tree.fromstring(leased_network_xml("control", "p-000000", "10.78.0.1", {"02:00": "10.78.1.1"}))  # noqa: S314
    hosts = [(host.get("mac"), host.get("ip")) for host in network.iter("host")]
    assert hosts == [("02:00", "10.78.1.1")]
    assert network.find("forward") is None


def test_vagrant_settings_have_machines_memory_and_host_key(tmp_path: Path, lab: LabSpec) -> None:
    settings = Settings(tmp_path / "box", tmp_path / "home", lab)
    (tmp_path / "box").mkdir()
    large = NodeSpec("node-2", 1, "zone-a", "1" * 32, shape=Shape(memory_mib=2048, cpus=2))
    nodes = [
        settings.node(spec, tmp_path / "seed", "ssh-ed25519 AAAA", tmp_path / "log") for spec in (SPEC, large)
    ]
    settings.write(nodes, kvm=False)

    stored = json.loads((tmp_path / "box" / "settings.json").read_text())
    assert [(node["name"], node["memory_mib"], node["cpus"]) for node in stored["nodes"]] == [
        ("node-1", 1280, 1),
        ("node-2", 2048, 2),
    ]
    assert (tmp_path / "box" / "node-1" / "known_hosts").read_text() == "node-1 ssh-ed25519 AAAA\n"
    assert "StrictHostKeyChecking yes" in (tmp_path / "box" / "node-1" / "ssh_config").read_text()
    assert stored["lab"]["pool"] == "p-000000"


def test_box_is_installed_without_a_copy_of_the_image(
    tmp_path: Path, lab: LabSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[Sequence[str]] = []
    monkeypatch.setattr(proc, "run", lambda argv, **_limits: ran.append(argv))
    monkeypatch.setattr(LabSpec, "dir", property(lambda _lab: tmp_path / "lab"))
    (tmp_path / "lab" / "pki").mkdir(parents=True)
    (tmp_path / "lab" / "pki" / "ssh").write_text("key")

    Settings(tmp_path / "box", tmp_path / "home", lab).install(tmp_path / "pool")

    box = tmp_path / "home" / "boxes" / "nodeproof-abcdef012345" / "0" / "libvirt"
    assert (box / "box.img").readlink() == Path(lab.guest["disk"])
    assert json.loads((box / "metadata.json").read_text())["provider"] == "libvirt"
    (call,) = ran
    assert str(call[-1]).startswith(f"{tmp_path}/pool/nodeproof-abcdef012345_vagrant_box_image_0_")
    assert (tmp_path / "box" / "ssh").stat().st_mode & 0o077 == 0


def test_machine_lost_by_vagrant_can_be_remembered_and_forgotten(tmp_path: Path) -> None:
    vagrant = Vagrant(tmp_path, tmp_path, tmp_path, tmp_path / "log")
    assert vagrant.machine_id("node-1") == ""
    vagrant.remember("node-1", "an-id")
    assert vagrant.machine_id("node-1") == "an-id"
    vagrant.forget("node-1")
    assert vagrant.machine_id("node-1") == ""


def test_vagrant_output_is_kept_even_on_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "vagrant"
    program.write_text("#!/bin/sh\necho $VAGRANT_DOTFILE_PATH $*\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(proc.CommandFailed) as failed:
        Vagrant(tmp_path, tmp_path, tmp_path, tmp_path / "log").up(["node-1"])
    assert failed.value.status == 3
    line = f"{tmp_path}/machines up --provider=libvirt node-1"
    assert (tmp_path / "log").read_text() == f"$ vagrant up --provider=libvirt node-1\n{line}\n"
