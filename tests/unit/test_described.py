"""What `kubectl describe node` prints, taken apart."""

from nodeproof.probes.described import sections

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


def test_each_key_stands_below_its_heading() -> None:
    found = sections(TEXT)
    assert found["Capacity"]["cpu"] == "4"
    assert found["Allocatable"]["cpu"] == "3"
    assert found["Conditions"]["Ready"] == "True"
    assert found["Addresses"] == {"InternalIP": "10.77.1.1", "Hostname": "node-1"}
    assert found["System Info"]["Boot ID"] == "0c0b"


def test_of_nothing_there_is_no_section() -> None:
    assert sections("") == {}
