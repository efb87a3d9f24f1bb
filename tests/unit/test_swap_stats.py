"""What is read of a kubelet's summary of its node's use of swap."""

from nodeproof.probes.swap_stats import swap_of

TOLD = {
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


def test_of_the_node_of_a_pod_and_of_a_container() -> None:
    assert swap_of(TOLD, "", "") == {"swapUsageBytes": 3, "swapAvailableBytes": 7}
    assert swap_of(TOLD, "paged", "") == {"swapUsageBytes": 2}
    assert swap_of(TOLD, "paged", "main") == {"swapUsageBytes": 1}


def test_what_is_not_there_tells_nothing() -> None:
    assert swap_of(TOLD, "gone", "main") == swap_of(TOLD, "gone", "") == {}
    assert swap_of(TOLD, "paged", "none") == swap_of(TOLD, "paged", "gone") == {}
