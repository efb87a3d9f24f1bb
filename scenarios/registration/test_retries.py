"""A kubelet without an API server, and its retries."""

from itertools import pairwise

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, windows
from nodeproof.scenario.kubernetes import Node
from nodeproof.scenario.sources import Log

NAME, LEASES = Node("retrying"), "kube-node-lease"
FIRST_S, MOST_S, TAKES_S = 0.2, 7, 1.0
"""First wait, longest wait and longest duration of an attempt (s).

Before the first attempt the kubelet starts. From then on both loops wait equally long: registerWithAPIServer
in pkg/kubelet/kubelet_node_status.go, backoffEnsureLease.
"""
GROWING = ("200ms", "400ms", "800ms", "1.6s", "3.2s", "6.4s")
GROWTH_S = 13
WAITS = len(GROWING) + 2
REJECT = """
add table inet nodeproof_unreachable
add chain inet nodeproof_unreachable out { type filter hook output priority 0; }
add rule inet nodeproof_unreachable out tcp dport 6443 reject with tcp reset
"""
TABLE = "nodeproof_unreachable"
TAINT = {"key": "nodeproof.dev/kept", "value": "yes", "effect": "NoSchedule"}
STARTS = "Kubelet version"
ATTEMPT, RETRY = "Attempting to register node", "Failed to ensure lease exists, will retry"
REQUEST_S, UP_S = 3, 30
LEASED = f"max({MOST_S}, 1.04R) + {REQUEST_S}"
"""Time from the creation of a Node to its Lease (s).

Without a Node, `ensureLease` creates no Lease and returns no error, so a whole renewal interval passes until
the next attempt (k8s.io/component-helpers/apimachinery/lease/controller.go).
"""


@needs(nodes=2, duration_s=f"{GROWTH_S + 3 * MOST_S} + 27")
def test_kubelet_doubles_registration_delay_up_to_seven_seconds(lab: Lab, claim: Expectations) -> None:
    """The machine resets its connections to the API server, so an attempt takes no time."""
    kubelet = f"kubelet-{NAME}"
    starts, attempts, retries = (Log(kubelet, text) for text in (STARTS, ATTEMPT, RETRY))
    waits = [Log(kubelet, RETRY, about=f'interval="{wait}"') for wait in (*GROWING, f"{MOST_S}s")]
    restart = actions.restart_joined(NAME)
    lift = actions.run_on(NAME, "nft", "delete", "table", "inet", TABLE)
    registered = moments.first_after(NAME.created, after=lift.begun)
    tainted = moments.created("nodes", NAME, like={"spec": {"taints": [TAINT]}})
    leased = moments.first_after(moments.created("leases", NAME, LEASES), after=lift.begun)
    latest = f"{MOST_S + REQUEST_S}"
    registration_window = windows.formula("within", latest, "0", f"{latest} + slack")
    lease_window = windows.up_to(LEASED)
    registration, lease = claim("registration.retry-backoff"), claim("heartbeat.lease-backoff")
    with_taints = claim("registration.with-taints")
    # The log must begin before the recording, as proof that it is complete.
    lab.run(actions.join(NAME, registerWithTaints=[TAINT]))
    lab.run(actions.kubectl("wait", "--for=create", f"node/{NAME}", "--timeout=30s"))

    with lab.record():
        reject = lab.run(actions.run_on(NAME, "sh", "-c", "printf '%s' \"$0\" | nft -f -", REJECT))
        registration.expect_value(reject, {"status": 0})
        lab.run(actions.kubectl("delete", "node", NAME))
        lab.run(restart)
        refused = windows.absence(GROWTH_S + 3 * MOST_S + 2)
        creation = moments.first_after(NAME.created, after=restart.begun)
        lab.wait_for(creation.never_after(restart.ended, refused))
        lab.run(lift)
        registration.expect(registered, within=registration_window, after=lift.begun)
        # The last of many attempts registers the same Node as the first would have.
        tainted_again = moments.first_after(tainted, after=lift.begun)
        with_taints.expect(tainted_again, within=UP_S, after=lift.begun)
        lease.expect(leased, within=lease_window, after=registered)
        lab.collect(starts, attempts, retries, *waits)

    # The previous kubelet may log retries until it has ended.
    start = moments.first_after(starts.line, after=restart.begun)
    for expectation, log in ((registration, attempts), (lease, retries)):
        span = {"after": start, "until": lift.begun}
        doubled = checks.doubled(log.line, FIRST_S, MOST_S, takes_s=TAKES_S, at_least=WAITS, **span)
        expectation.expect_later(doubled)
    lines = [start, *(moments.first_after(log.line, after=start) for log in waits)]
    for previous, line in pairwise(lines):
        lease.expect_later(line, within=MOST_S + REQUEST_S, after=previous)
