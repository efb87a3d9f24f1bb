"""A kubelet that reaches no API server, and what it tries meanwhile."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Log,
    Stage,
    claims,
    join,
    kubectl,
    made,
    needs,
    next_of,
    run_on,
    shows,
    spaced,
    start_again,
    windows,
)

NAME, LEASES, UP_S = "retrying", "kube-node-lease", 60.0
GROWN_S, MOST_S = 15, 7
"""0.1 s doubled seven times is longer than the longest wait: by then that is reached."""
REJECT = """
add table inet nodeproof_unreachable
add chain inet nodeproof_unreachable out { type filter hook output priority 0; }
add rule inet nodeproof_unreachable out tcp dport 6443 reject with tcp reset
"""
TABLE = "nodeproof_unreachable"
ATTEMPT, RETRY = "Attempting to register node", "Failed to ensure lease exists, will retry"
REQUEST_S = 3
LEASED = f"max({MOST_S}, 1.04R) + {REQUEST_S}"
"""From a Node's birth: without one `ensureLease` makes no Lease and tells no error, so that a whole renewal
passes until the next try (k8s.io/component-helpers/apimachinery/lease/controller.go).
"""


@claims("registration.retry-backoff", "heartbeat.lease-backoff")
@needs(nodes=2, lasts=f"{GROWN_S + 3 * MOST_S} + 25")
def test_a_kubelet_that_is_refused_tries_again_at_most_seven_seconds_later(lab: Stage, judge: Judge) -> None:
    """It is answered by resets, so that a try takes no time."""
    kubelet = f"kubelet-{NAME}"
    attempts = Log(kubelet, ATTEMPT)
    first, last = (Log(kubelet, RETRY, about=f'interval="{wait}"') for wait in ("200ms", f"{MOST_S}s"))
    born, again = made("nodes", NAME), start_again(NAME)
    grown, lift = run_on(NAME, "true"), run_on(NAME, "nft", "delete", "table", "inet", TABLE)
    most = windows.formula("period", f"{MOST_S}", f"{MOST_S} - slack", f"{MOST_S} + 1 + slack")
    soon = windows.formula("within", f"{MOST_S + REQUEST_S}", "0", f"{MOST_S + REQUEST_S} + slack")
    leased = windows.formula("within", LEASED, "-slack", f"{LEASED} + slack")
    # What its log says before the recording began has to be there to tell that nothing is missing.
    lab.do(join(NAME))
    lab.do(kubectl("wait", "--for=create", f"node/{NAME}", "--timeout=30s"))

    with lab.record():
        cut = lab.do(run_on(NAME, "sh", "-c", "printf '%s' \"$0\" | nft -f -", REJECT))
        lab.do(kubectl("delete", "node", NAME))
        lab.do(again)
        lab.wait_for(next_of(born, after=again.begun).never_after(again.begun, windows.absence(GROWN_S)))
        lab.do(grown)
        lab.wait_for(
            next_of(born, after=grown.begun).never_after(grown.begun, windows.absence(3 * MOST_S + 2))
        )
        lab.do(lift)
        registered = lab.wait_for(next_of(born, after=lift.begun).after(lift.begun, soon))
        there = next_of(born, after=lift.begun)
        renewed = lab.wait_for(next_of(made("leases", NAME, LEASES), after=lift.begun).after(there, leased))
        lab.hear(attempts, first, last)

    rate = spaced(attempts.line, most, at_least=2, after=grown.begun, until=lift.begun)
    for check in (shows(cut, {"status": 0}), rate, registered):
        judge("registration.retry-backoff", check)
    prompt = windows.prompt(UP_S)
    waits = (first.line.after(again.begun, prompt), last.line.after(first.line, prompt))
    for check in (*waits, renewed):
        judge("heartbeat.lease-backoff", check)
