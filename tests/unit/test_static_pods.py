"""The file of a static pod, and the name of its mirror at the API."""

from __future__ import annotations

import json

from nodeproof.scenario import STATIC_PODS, mirror_pod, static_pod


def test_a_kubelet_makes_the_mirrors_name_of_the_files() -> None:
    mirror = mirror_pod("node-1")
    file = static_pod(mirror, {"cpu": "300m"})
    told = json.loads(file.content)
    assert (file.node, file.path) == ("node-1", f"{STATIC_PODS}/{mirror.name}.json")
    assert f"{told['metadata']['name']}-node-1" == mirror.name
    assert told["metadata"]["namespace"] == mirror.namespace
    assert told["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "300m"}}
    assert "nodeName" not in told["spec"]
