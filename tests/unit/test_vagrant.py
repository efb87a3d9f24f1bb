"""What a Vagrant lab writes for Vagrant and reads from it, without either."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from nodeproof import proc, remedy
from nodeproof.labs.ground.spec import LabSpec, NodeSpec, Shape
from nodeproof.labs.kinds import LIBVIRT, VAGRANT
from nodeproof.labs.kinds.libvirt.domain_xml import card_xml, leased_network_xml, mac, owner_told, tag_xml
from nodeproof.labs.kinds.vagrant.settings import Settings
from nodeproof.labs.kinds.vagrant.vagrant import Reached, Vagrant, read_ssh_config

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
    """A lab with a key, and an image of a few bytes."""
    image = tmp_path / "abcdef012345"
    image.mkdir()
    files = {role: image / role for role in ("disk", "kernel", "initrd")}
    for file in files.values():
        file.write_text(file.name)
    guest = {**{role: str(file) for role, file in files.items()}, "arguments": "quiet"}
    return LabSpec("p-000000", 0, 0, "v1.36.3", {}, True, "", "fast", (SPEC,), False, VAGRANT.name, guest)


def test_how_vagrant_reaches_a_machine_is_read_where_it_is_told_in_full() -> None:
    assert read_ssh_config(SSH_CONFIG) == {
        "node-1": Reached("10.78.1.1", "root", Path("/run/it/a folder/ssh"))
    }


@pytest.mark.parametrize("state", ["up", "down"])
def test_the_carrier_of_one_card_is_changed_and_nothing_else_of_it(state: str) -> None:
    element = Tree.fromstring(card_xml(DESCRIBED, mac("data", 0), state))  # noqa: S314
    found = element.find("source"), [link.get("state") for link in element.findall("link")]
    assert found[0] is not None and found[0].get("bridge") == "data"
    assert found[1] == [state]


def test_a_machine_without_the_card_is_no_machine_of_ours() -> None:
    with pytest.raises(ValueError, match="no card"):
        card_xml(DESCRIBED, mac("data", 7), "up")


def test_a_tag_says_to_the_guard_whose_a_machine_is() -> None:
    assert owner_told(tag_xml("p-000000", SPEC.machine_id)) == f"p-000000 {SPEC.machine_id}"


def test_each_card_is_leased_its_own_address() -> None:
    network = Tree.fromstring(leased_network_xml("control", "p-000000", "10.78.0.1", {"02:00": "10.78.1.1"}))  # noqa: S314
    hosts = [(host.get("mac"), host.get("ip")) for host in network.iter("host")]
    assert hosts == [("02:00", "10.78.1.1")]
    assert network.find("forward") is None


def test_the_vagrantfile_is_told_each_machine_with_its_memory_and_its_only_host_key(
    tmp_path: Path, lab: LabSpec
) -> None:
    made = Settings(tmp_path / "box", tmp_path / "home", lab)
    (tmp_path / "box").mkdir()
    large = NodeSpec("node-2", 1, "zone-a", "1" * 32, shape=Shape(memory_mib=2048, cpus=2))
    nodes = [
        made.node(spec, tmp_path / "seed", "ssh-ed25519 AAAA", tmp_path / "log") for spec in (SPEC, large)
    ]
    made.tell(nodes, kvm=False)

    told = json.loads((tmp_path / "box" / "settings.json").read_text())
    assert [(node["name"], node["memory_mib"], node["cpus"]) for node in told["nodes"]] == [
        ("node-1", 1280, 1),
        ("node-2", 2048, 2),
    ]
    assert (tmp_path / "box" / "node-1" / "known_hosts").read_text() == "node-1 ssh-ed25519 AAAA\n"
    assert "StrictHostKeyChecking yes" in (tmp_path / "box" / "node-1" / "ssh_config").read_text()
    assert told["lab"]["pool"] == "p-000000"


def test_the_box_is_installed_without_a_copy_of_the_image(
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
    (made,) = ran
    assert str(made[-1]).startswith(f"{tmp_path}/pool/nodeproof-abcdef012345_vagrant_box_image_0_")
    assert (tmp_path / "box" / "ssh").stat().st_mode & 0o077 == 0


def test_a_machine_that_vagrant_has_lost_is_remembered_and_forgotten(tmp_path: Path) -> None:
    vagrant = Vagrant(tmp_path, tmp_path, tmp_path, tmp_path / "log")
    assert vagrant.machine_id("node-1") == ""
    vagrant.remember("node-1", "an-id")
    assert vagrant.machine_id("node-1") == "an-id"
    vagrant.forget("node-1")
    assert vagrant.machine_id("node-1") == ""


def test_what_vagrant_says_is_kept_also_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "vagrant"
    program.write_text("#!/bin/sh\necho $VAGRANT_DOTFILE_PATH $*\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(proc.CommandFailed) as failed:
        Vagrant(tmp_path, tmp_path, tmp_path, tmp_path / "log").up(["node-1"])
    assert failed.value.status == 3
    said = f"{tmp_path}/machines up --provider=libvirt node-1"
    assert (tmp_path / "log").read_text() == f"$ vagrant up --provider=libvirt node-1\n{said}\n"


def test_its_machines_have_what_a_libvirt_labs_have_but_for_shapes() -> None:
    assert VAGRANT.features == LIBVIRT.features - {"shapes"}
    assert {"vagrant", "dnsmasq", *LIBVIRT.host.tools} <= set(VAGRANT.host.tools)
    assert VAGRANT.host.remedy == remedy.VAGRANT
