"""Labs of process nodes: a node needs no virtual machine, takes 30 MiB and starts in a second."""

from __future__ import annotations

from nodeproof.labs.kinds.kind import Kind
from nodeproof.labs.kinds.process.node import ProcessNodes
from nodeproof.labs.kinds.process.seed import kubelet_settings
from nodeproof.labs.kinds.process.storage import served

PROCESS = Kind(
    "process",
    ProcessNodes,
    features=frozenset({"freeze", "link", "power", "proxy", "reset", "volumes"}),
    kubelet=kubelet_settings,
    storage=served,
    is_hollow=True,
    has_host_clock=True,
    made_of=("kubelet on a fake container runtime (hollow), GOMAXPROCS=1",),
)
