"""The file of a static pod, and the name of its mirror pod."""

from __future__ import annotations

import json

from nodeproof.scenario import STATIC_PODS, mirror_pod, static_pod


def test_mirror_pod_has_the_name_of_its_file_and_node() -> None:
    mirror = mirror_pod("node-1")
    file = static_pod(mirror, {"cpu": "300m"})
    pod = json.loads(file.content)
    assert (file.node, file.path) == ("node-1", f"{STATIC_PODS}/{mirror.name}.json")
    assert f"{pod['metadata']['name']}-node-1" == mirror.name
    assert pod["metadata"]["namespace"] == mirror.namespace
    assert pod["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "300m"}}
    assert "nodeName" not in pod["spec"]
