"""The addresses of a Node, which its kubelet gets as a flag or detects."""

from nodeproof.scenario import Expectations, Lab, actions, checks, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import Node
from nodeproof.scenario.sources import Log
from nodeproof.scenario.types import Moment

UP_S = 60.0
HOSTNAME = "kubernetes.io/hostname"
IPV4, IPV6, SECOND_IPV4, LINK_LOCAL = "10.77.251.1", "fd77::1", "10.77.251.2", "169.254.77.1"
GATEWAY = "10.77.0.1"
# A kubelet takes the first address of an interface; the old one is removed for an instant only.
REPLACE = """
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
NEXT_STATUS = windows.formula("within", "2U", "0", "2U + slack")


def has(node: str, type_: str, address: str) -> Moment:
    addresses = [{"type": type_, "address": address}]
    return moments.written("nodes", {"metadata": {"name": node}, "status": {"addresses": addresses}})


@needs(nodes=2, lasts="25")
def test_kubelet_without_node_ip_reports_default_route_address(lab: Lab, claim: Expectations) -> None:
    """The hostname of its machine differs from the name of its Node, which no hosts file has."""
    machine, node = "box-found", Node("found")
    soon, label = windows.prompt(UP_S), {"metadata": {"labels": {HOSTNAME: node}}}
    override, refresh = claim("addresses.hostname-override"), claim("addresses.refresh")

    with lab.record():
        lab.run(actions.join(machine, node=node, flags=["--node-ip="]))
        hostname = lab.run(actions.run_on(machine, "hostname"))
        override.expect_later(checks.shows(hostname, {"stdout": f"{machine}\n"}))
        for moment in (moments.created("nodes", node, like=label), has(node, "Hostname", node)):
            override.expect(moment, within=soon, after=moments.booted(machine))
        own = lab.observe(probes.source_address(machine)).value
        claim("registration.node-ip-default").expect(
            has(node, "InternalIP", own), within=soon, after=moments.booted(machine)
        )
        replace = actions.run_on(machine, "sh", "-c", REPLACE, SECOND_IPV4, own, GATEWAY)
        refresh.expect_later(checks.shows(lab.run(replace), {"status": 0}))
        removed = node.became({"status": {"addresses": {"$not": [{"address": own}]}}})
        for moment in (has(node, "InternalIP", SECOND_IPV4), removed):
            refresh.expect(moment, within=NEXT_STATUS, after=replace.begun)


@needs(nodes=2, lasts="50")
def test_node_gets_ips_of_node_ip_flag_once_its_machine_has_them(lab: Lab, claim: Expectations) -> None:
    node, kubelet = Node("given"), "kubelet-given"
    node_created, quiet = node.created, windows.absence(lab.quiet_s)
    ipv4, ipv6 = (has(node, "InternalIP", address) for address in (IPV4, IPV6))
    add = actions.run_on(node, "sh", "-c", ADD, IPV4, IPV6, LINK_LOCAL)
    missing = Log(kubelet, "failed to validate nodeIP", about=IPV4)
    node_ip, dual_stack = claim("registration.node-ip"), claim("registration.node-ip-dual-stack")
    not_on_host = claim("registration.node-ip-not-on-host")

    with lab.record():
        lab.run(actions.join(node, flags=[f"--node-ip={IPV4},{IPV6}"]))
        families = lab.run(actions.run_on(node, "test", "-e", "/proc/net/if_inet6"))
        is_ipv6_enabled = families.value["status"] == 0
        lab.require_lab(
            is_ipv6_enabled,
            otherwise="IPv6 is disabled on the node",
            next_step="enable it: sysctl net.ipv6.conf",
        )
        lab.wait_for(node_created.after(moments.booted(node), windows.prompt(UP_S)))
        not_on_host.never(ipv4, throughout=quiet, after=node_created)
        node_ip.expect_later(checks.shows(lab.run(add), {"status": 0}))
        node_ip.expect_later(dual_stack.expect(ipv4, within=NEXT_STATUS, after=add.begun))
        dual_stack.expect(ipv6, within=NEXT_STATUS, after=add.begun)
        addresses = lab.run(actions.kubectl("get", "node", node, "-o", ADDRESSES))
        dual_stack.expect_later(checks.shows(addresses, {"stdout": f"{IPV4} {IPV6} {node}"}))
        logs = [restart_with_refused_address(lab, claim, node, address) for address in REFUSED]
        lab.collect(missing, *logs)
        not_on_host.expect_later(missing.line, within=windows.prompt(UP_S), after=moments.booted(node))
        one_family = lab.run(actions.try_kubelet(node, f"--node-ip={IPV4},{SECOND_IPV4}"))
        dual_stack.expect_later(
            checks.shows(one_family, {"status": 1, "output": {"$contains": "bad --node-ip"}})
        )


def restart_with_refused_address(lab: Lab, claim: Expectations, node: str, address: str) -> Log:
    """Restart the kubelet with an address that it refuses, and return its log, to be collected."""
    log = Log(f"kubelet-{node}", REFUSED[address])
    restart = actions.restart_joined(node, f"--node-ip={address}")
    # No earlier kubelet had this address, so one that is reported at once is this kubelet's.
    since_before = windows.absence_from_before(lab.quiet_s + lab.clear_s)
    not_on_host = claim("registration.node-ip-not-on-host")

    lab.run(restart)
    not_on_host.never(has(node, "InternalIP", address), throughout=since_before, after=restart.begun)
    not_on_host.expect_later(log.line, within=windows.prompt(UP_S), after=restart.begun)
    return log
