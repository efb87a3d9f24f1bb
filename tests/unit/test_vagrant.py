"""Files and output between a Vagrant lab and Vagrant, without running it."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as Tree

import pytest

from nodeproof import proc
from nodeproof.labs.base.spec import NodeSpec
from nodeproof.labs.kinds.libvirt.domain_xml import card_xml, mac, parse_owner, tag_xml
from nodeproof.labs.kinds.vagrant.nodes import Vagrant

SPEC = NodeSpec("node-1", 0, "zone-a", "0" * 32)
DESCRIBED = """\
<domain type='qemu'><devices>
  <interface type='network'><mac address='02:6e:70:00:00:00'/><source network='control'/></interface>
  <interface type='bridge'>
    <mac address='02:6e:70:01:00:00'/><source bridge='data'/><link state='down'/>
  </interface>
</devices></domain>
"""


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
