"""Values that probes read from the output of machines and components."""

from __future__ import annotations

import pytest

from nodeproof.model.quantity import amount
from nodeproof.probes.api import as_numbers, sections, swap_of
from nodeproof.probes.machine import facts, parse_values
from nodeproof.probes.volume import acknowledged_in, counts_in, last_of, mount_of

TEXT = """\
Name:               node-1
Conditions:
  Type             Status  LastHeartbeatTime
  ----             ------  -----------------
  Ready            True    Mon, 23 Nov 2026
Addresses:
  InternalIP:  10.77.1.1
  Hostname:    node-1
Capacity:
  cpu:                4
Allocatable:
  cpu:                3
System Info:
  Boot ID:                    0c0b
  Operating System:           linux
"""


def test_each_key_is_below_its_heading() -> None:
    headings = sections(TEXT)
    assert headings["Capacity"]["cpu"] == "4"
    assert headings["Allocatable"]["cpu"] == "3"
    assert headings["Conditions"]["Ready"] == "True"
    assert headings["Addresses"] == {"InternalIP": "10.77.1.1", "Hostname": "node-1"}
    assert headings["System Info"]["Boot ID"] == "0c0b"
    assert sections("") == {}


STATS = {
    "node": {"nodeName": "node-1", "swap": {"swapUsageBytes": 3, "swapAvailableBytes": 7}},
    "pods": [
        {"podRef": {"name": "other"}, "swap": {"swapUsageBytes": 9}},
        {
            "podRef": {"name": "paged"},
            "swap": {"swapUsageBytes": 2},
            "containers": [{"name": "main", "swap": {"swapUsageBytes": 1}}, {"name": "none"}],
        },
    ],
}


def test_swap_of_node_pod_and_container_is_read() -> None:
    assert swap_of(STATS, "", "") == {"swapUsageBytes": 3, "swapAvailableBytes": 7}
    assert swap_of(STATS, "paged", "") == {"swapUsageBytes": 2}
    assert swap_of(STATS, "paged", "main") == {"swapUsageBytes": 1}


def test_missing_swap_statistics_are_empty() -> None:
    assert swap_of(STATS, "gone", "main") == swap_of(STATS, "gone", "") == {}
    assert swap_of(STATS, "paged", "none") == swap_of(STATS, "paged", "gone") == {}


FOLDER = "/var/lib/kubelet/pods/0c0b/volumes/kubernetes.io~secret"
MOUNTS = f"""\
/dev/vda / ext4 rw,relatime 0 0
tmpfs {FOLDER}/kept tmpfs rw,relatime,size=1259652k,noswap 0 0
tmpfs {FOLDER}/other tmpfs rw,relatime 0 0
"""


@pytest.mark.parametrize(
    ("mounts", "pod", "volume", "lines"),
    [
        (MOUNTS, "0c0b", "kept", ["tmpfs", "rw", "relatime", "size=1259652k", "noswap"]),
        (f"{MOUNTS}none {FOLDER}/kept tmpfs rw 0 0\n", "0c0b", "kept", ["tmpfs", "rw"]),
        (MOUNTS, "beef", "kept", []),
        (MOUNTS, "0c0b", "ept", []),
    ],
    ids=["a volume", "the last mount counts", "another pod", "another volume"],
)
def test_volume_has_a_type_and_options(mounts: str, pod: str, volume: str, lines: list[str]) -> None:
    assert mount_of(mounts, pod, volume).splitlines() == lines


NUMBERS = "1 node-1\n2 node-1\n3 node-2\n"
NODES = ("node-1", "node-2")


def test_each_node_has_its_last_number() -> None:
    assert [last_of(NUMBERS, node) for node in ("node-1", "node-2", "node-3")] == [2, 3, 0]
    assert last_of("1 node-1\n2 node-1", "node-1") == 1


@pytest.mark.parametrize(("text", "written"), [(NUMBERS, 3), ("", 0)])
def test_consecutive_numbers_have_no_flaw(text: str, written: int) -> None:
    assert counts_in(text, NODES) == {"written": written, "lost": [], "doubled": [], "torn": []}


def test_torn_lost_and_doubled_numbers_are_reported() -> None:
    flaws = counts_in("1 node-1\n3\n3 node-2\n3 node-1\n", NODES)
    assert flaws == {"written": 3, "lost": [2], "doubled": [3], "torn": ["3\n"]}


@pytest.mark.parametrize(
    ("text", "torn"),
    [
        ("1 node-1\n2 nod", ["2 nod"]),
        ("1 node-1\n2 node-2", ["2 node-2"]),
        ("1 node-1\n2 nod3 node-2\n", ["2 nod3 node-2\n"]),
        ("1 node-1\n2 nod\n", ["2 nod\n"]),
        ("1 node-1\n\n", ["\n"]),
    ],
)
def test_partial_line_is_torn(text: str, torn: list[str]) -> None:
    assert counts_in(text, NODES)["torn"] == torn


def test_last_acknowledged_number_is_the_highest_of_all_boots() -> None:
    assert acknowledged_in("9.1 beat\n9.2 wrote 7\n5.0 started\n5.5 wrote 3\n5.9 failed to write 8\n") == 7
    assert acknowledged_in("9.1 beat\n") == 0


OUTPUT = """\
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


def test_machine_facts_have_the_names_of_node_fields() -> None:
    values = facts(parse_values(OUTPUT))
    assert (values["os"], values["architecture"]) == ("linux", "amd64")
    assert (values["runtime"], values["kubelet"]) == ("1.7.24", "v1.36.3")
    assert values["addresses"] == ["10.77.1.2", "10.78.1.2"]
    assert (values["cpus"], values["memory"]) == (1, 1247680 * 1024)
    assert values["command"].endswith("--node-labels=a=b,c=d")


def test_resources_are_numbers() -> None:
    resources = {"cpu": "950m", "memory": "1145280Ki", "pods": "110", "ephemeral-storage": "7605865255"}
    has = {"cpu": 950, "memory": 1145280 * 1024, "pods": 110, "ephemeral-storage": 7605865255}
    assert as_numbers(resources) == has
    assert as_numbers({"cpu": "1", "memory": "2G"}) == {"cpu": 1000, "memory": 2_000_000_000}
    assert amount("1.5Gi") == 3 << 29
    for wrong in ("", "Ki", "1Q", "-1"):
        with pytest.raises(ValueError, match="not a quantity"):
            amount(wrong)
    with pytest.raises(ValueError, match="not a whole number"):
        as_numbers({"memory": "1500m"})
