"""A kubelet that reaches no API server, and what it tries meanwhile."""

from itertools import pairwise

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Log,
    Stage,
    claims,
    doubled,
    join,
    kubectl,
    made,
    needs,
    next_of,
    run_on,
    shows,
    start_again,
    windows,
)

NAME, LEASES = "retrying", "kube-node-lease"
FIRST_S, MOST_S, TAKES_S = 0.2, 7, 1.0
"""What comes before the first try is the kubelet's start. From then on both wait the same:
registerWithAPIServer in pkg/kubelet/kubelet_node_status.go, backoffEnsureLease.
"""
GROWING = ("200ms", "400ms", "800ms", "1.6s", "3.2s", "6.4s")
GROWN_S = 13
WAITS = len(GROWING) + 2
REJECT = """
add table inet nodeproof_unreachable
add chain inet nodeproof_unreachable out { type filter hook output priority 0; }
add rule inet nodeproof_unreachable out tcp dport 6443 reject with tcp reset
"""
TABLE = "nodeproof_unreachable"
STARTS = "Kubelet version"
ATTEMPT, RETRY = "Attempting to register node", "Failed to ensure lease exists, will retry"
REQUEST_S = 3
LEASED = f"max({MOST_S}, 1.04R) + {REQUEST_S}"
"""From a Node's birth: without one `ensureLease` makes no Lease and tells no error, so that a whole renewal
passes until the next try (k8s.io/component-helpers/apimachinery/lease/controller.go).
"""


@claims("registration.retry-backoff", "heartbeat.lease-backoff")
@needs(nodes=2, lasts=f"{GROWN_S + 3 * MOST_S} + 27")
def test_a_kubelet_that_is_refused_waits_twice_as_long_each_time_up_to_seven_seconds(
    lab: Stage, judge: Judge
) -> None:
    """It is answered by resets, so that a try takes no time."""
    kubelet = f"kubelet-{NAME}"
    starts, attempts, retries = (Log(kubelet, text) for text in (STARTS, ATTEMPT, RETRY))
    said = {wait: Log(kubelet, RETRY, about=f'interval="{wait}"') for wait in (*GROWING, f"{MOST_S}s")}
    born, again = made("nodes", NAME), start_again(NAME)
    lift = run_on(NAME, "nft", "delete", "table", "inet", TABLE)
    soon = windows.formula("within", f"{MOST_S + REQUEST_S}", "0", f"{MOST_S + REQUEST_S} + slack")
    leased = windows.formula("within", LEASED, "-slack", f"{LEASED} + slack")
    # What its log says before the recording began has to be there to tell that nothing is missing.
    lab.do(join(NAME))
    lab.do(kubectl("wait", "--for=create", f"node/{NAME}", "--timeout=30s"))

    with lab.record():
        cut = lab.do(run_on(NAME, "sh", "-c", "printf '%s' \"$0\" | nft -f -", REJECT))
        lab.do(kubectl("delete", "node", NAME))
        lab.do(again)
        there = next_of(born, after=again.begun)
        lab.wait_for(there.never_after(again.ended, windows.absence(GROWN_S + 3 * MOST_S + 2)))
        lab.do(lift)
        back = next_of(born, after=lift.begun)
        registered = lab.wait_for(back.after(lift.begun, soon))
        renewed = lab.wait_for(next_of(made("leases", NAME, LEASES), after=lift.begun).after(back, leased))
        lab.hear(starts, attempts, retries, *said.values())

    # Until it has ended, the kubelet from before may say that it retries.
    span = {"after": next_of(starts.line, after=again.begun), "until": lift.begun}
    tried, ensured = (
        doubled(source.line, FIRST_S, MOST_S, takes_s=TAKES_S, at_least=WAITS, **span)
        for source in (attempts, retries)
    )
    for check in (shows(cut, {"status": 0}), tried, registered):
        judge("registration.retry-backoff", check)
    lines = [next_of(source.line, after=span["after"]) for source in said.values()]
    grows = [
        line.after(before, windows.prompt(MOST_S + REQUEST_S))
        for before, line in pairwise([span["after"], *lines])
    ]
    for check in (ensured, *grows, renewed):
        judge("heartbeat.lease-backoff", check)
