"""The addresses that a Node has: those that its kubelet is given, or finds."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Log,
    Moment,
    Stage,
    became,
    booted,
    claims,
    join,
    kubectl,
    made,
    needs,
    run_on,
    shows,
    source_address,
    start_again,
    try_kubelet,
    windows,
    written,
)

UP_S = 60.0
HOSTNAME = "kubernetes.io/hostname"
GIVEN, GIVEN_6, MOVED, LINK_LOCAL = "10.77.251.1", "fd77::1", "10.77.251.2", "169.254.77.1"
GATEWAY = "10.77.0.1"
# A kubelet takes the first of an interface's addresses; the old one is away for an instant only.
MOVE = """
ip addr add "$0/32" dev data && ip addr del "$1/16" dev data && ip addr add "$1/16" dev data || exit 1
ip route replace default via "$2" dev data
"""
ADD = 'ip addr add "$0/32" dev data && ip -6 addr add "$1/64" dev data nodad && ip addr add "$2/32" dev data'
REFUSED = {
    "127.0.0.1": "nodeIP can't be loopback address",
    LINK_LOCAL: "nodeIP can't be a link-local unicast address",
    "224.0.0.1": "nodeIP can't be a multicast address",
}
ADDRESSES = "jsonpath={.status.addresses[*].address}"


def has(node: str, kind: str, address: str) -> Moment:
    told = {"type": kind, "address": address}
    return written("nodes", {"metadata": {"name": node}, "status": {"addresses": [told]}})


@claims("addresses.hostname-override", "registration.node-ip-default", "addresses.refresh")
@needs(nodes=2, lasts="25")
def test_a_kubelet_that_is_given_no_address_takes_that_of_the_default_route(lab: Stage, judge: Judge) -> None:
    """Its machine is called otherwise than its Node, whose name is found in no list of hosts."""
    machine, node = "box-found", "found"
    begins, soon = booted(machine), windows.prompt(UP_S)
    label = {"metadata": {"labels": {HOSTNAME: node}}}

    with lab.record():
        lab.do(join(machine, node=node, flags=["--node-ip="]))
        called = lab.do(run_on(machine, "hostname"))
        overridden = [
            lab.wait_for(moment.after(begins, soon))
            for moment in (made("nodes", node, like=label), has(node, "Hostname", node))
        ]
        own = lab.look(source_address(machine))
        found = lab.wait_for(has(node, "InternalIP", own.value).after(begins, soon))
        moves = run_on(machine, "sh", "-c", MOVE, MOVED, own.value, GATEWAY)
        moved = lab.do(moves)
        next_status = windows.formula("within", "2U", "0", "2U + slack")
        none_of_it = {"$not": [{"address": own.value}]}
        refreshed = [
            lab.wait_for(moment.after(moves.begun, next_status))
            for moment in (
                has(node, "InternalIP", MOVED),
                became("nodes", node, {"status": {"addresses": none_of_it}}),
            )
        ]

    for check in (shows(called, {"stdout": f"{machine}\n"}), *overridden):
        judge("addresses.hostname-override", check)
    judge("registration.node-ip-default", found)
    for check in (shows(moved, {"status": 0}), *refreshed):
        judge("addresses.refresh", check)


@claims("registration.node-ip", "registration.node-ip-dual-stack", "registration.node-ip-not-on-host")
@needs(nodes=2, lasts="50")
def test_a_node_has_the_addresses_that_its_kubelet_is_given_once_its_machine_has_them(
    lab: Stage, judge: Judge
) -> None:
    node = "given"
    long_s = lab.quiet_s + lab.clear_s
    quiet, long = windows.absence(lab.quiet_s), windows.absence(long_s)
    first, second = (has(node, "InternalIP", address) for address in (GIVEN, GIVEN_6))
    complaint = Log(f"kubelet-{node}", "failed to validate nodeIP", about=GIVEN)
    refusals = {address: Log(f"kubelet-{node}", said) for address, said in REFUSED.items()}
    adds = run_on(node, "sh", "-c", ADD, GIVEN, GIVEN_6, LINK_LOCAL)
    next_status = windows.formula("within", "2U", "0", "2U + slack")
    # No earlier kubelet was given one of these: what comes as soon as it is up is this one's.
    since_before = windows.absence_from_before(long_s)
    restarts = {address: start_again(node, f"--node-ip={address}") for address in REFUSED}

    with lab.record():
        lab.do(join(node, flags=[f"--node-ip={GIVEN},{GIVEN_6}"]))
        families = lab.do(run_on(node, "test", "-e", "/proc/net/if_inet6"))
        lab.expect(families.value["status"] == 0, "one with IPv6", "turn it on: sysctl net.ipv6.conf")
        born = made("nodes", node)
        lab.wait_for(born.after(booted(node), windows.prompt(UP_S)))
        lab.wait_for(first.never_after(born, long))
        added = lab.do(adds)
        both = [lab.wait_for(each.after(adds.begun, next_status)) for each in (first, second)]
        in_order = lab.do(kubectl("get", "node", node, "-o", ADDRESSES))
        never = [first.never_after(born, quiet)]
        for address, restart in restarts.items():
            lab.do(restart)
            never.append(
                lab.wait_for(has(node, "InternalIP", address).never_after(restart.begun, since_before))
            )
        lab.hear(complaint, *refusals.values())
        of_one_family = lab.do(try_kubelet(node, f"--node-ip={GIVEN},{MOVED}"))

    judge("registration.node-ip", shows(added, {"status": 0}))
    judge("registration.node-ip", both[0])
    for check in (*both, shows(in_order, {"stdout": f"{GIVEN} {GIVEN_6} {node}"})):
        judge("registration.node-ip-dual-stack", check)
    refusal = shows(of_one_family, {"status": 1, "said": {"$contains": "bad --node-ip"}})
    judge("registration.node-ip-dual-stack", refusal)
    said = [
        refusals[address].line.after(restart.begun, windows.prompt(UP_S))
        for address, restart in restarts.items()
    ]
    for check in (*never, complaint.line.after(booted(node), windows.prompt(UP_S)), *said):
        judge("registration.node-ip-not-on-host", check)
