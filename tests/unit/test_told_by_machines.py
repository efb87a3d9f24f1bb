"""What machines and Nodes say of themselves, as numbers and words that can be compared."""

from __future__ import annotations

import pytest

from nodeproof.model.quantity import amount
from nodeproof.probes.machine_facts import facts, said_by
from nodeproof.probes.resources import in_numbers

SAID = """\
kernel=6.12.118+deb13-cloud-amd64
os=Linux
processor=x86_64
distribution=Debian GNU/Linux 13 (trixie)
runtime=1.7.24~ds1
kubelet=Kubernetes v1.36.3
command=/usr/local/bin/kubelet --config=/etc/kubernetes/kubelet.json --node-labels=a=b,c=d
machine_id=6a50d8ee438547a4b53412667e730888
system_uuid=01e4cd9d-24f9-5907-94c7-4325229d258d
boot_id=ee2ca64a-4330-4d44-b3d2-83f11fd8fb79
hostname=node-2
addresses=10.77.1.2 10.78.1.2
cpus=1
memory_kib=1247680
"""


def test_a_machine_is_told_in_the_words_of_a_node() -> None:
    told = facts(said_by(SAID))
    assert (told["os"], told["architecture"]) == ("linux", "amd64")
    assert (told["runtime"], told["kubelet"]) == ("1.7.24", "v1.36.3")
    assert told["addresses"] == ["10.77.1.2", "10.78.1.2"]
    assert (told["cpus"], told["memory"]) == (1, 1247680 * 1024)
    assert told["command"].endswith("--node-labels=a=b,c=d")


def test_resources_are_numbers() -> None:
    told = {"cpu": "950m", "memory": "1145280Ki", "pods": "110", "ephemeral-storage": "7605865255"}
    has = {"cpu": 950, "memory": 1145280 * 1024, "pods": 110, "ephemeral-storage": 7605865255}
    assert in_numbers(told) == has
    assert in_numbers({"cpu": "1", "memory": "2G"}) == {"cpu": 1000, "memory": 2_000_000_000}
    assert amount("1.5Gi") == 3 << 29
    for wrong in ("", "Ki", "1Q", "-1"):
        with pytest.raises(ValueError, match="not a quantity"):
            amount(wrong)
    with pytest.raises(ValueError, match="not a whole number"):
        in_numbers({"memory": "1500m"})
