"""What is mounted for a pod's volume, from the text of /proc/mounts."""

from nodeproof.probes.mounted import mount_of

FOLDER = "/var/lib/kubelet/pods/0c0b/volumes/kubernetes.io~secret"
MOUNTS = f"""\
/dev/vda / ext4 rw,relatime 0 0
tmpfs {FOLDER}/kept tmpfs rw,relatime,size=1259652k,noswap 0 0
tmpfs {FOLDER}/other tmpfs rw,relatime 0 0
"""


def test_a_volume_has_a_type_and_options() -> None:
    assert mount_of(MOUNTS, "0c0b", "kept").splitlines() == [
        "tmpfs",
        "rw",
        "relatime",
        "size=1259652k",
        "noswap",
    ]


def test_what_is_mounted_last_is_seen() -> None:
    over = f"{MOUNTS}none {FOLDER}/kept tmpfs rw 0 0\n"
    assert mount_of(over, "0c0b", "kept").splitlines() == ["tmpfs", "rw"]


def test_what_is_of_another_pod_or_volume_is_not_it() -> None:
    assert mount_of(MOUNTS, "beef", "kept") == ""
    assert mount_of(MOUNTS, "0c0b", "ept") == ""
