"""The addresses of a Node, which its kubelet gets as a flag or detects."""

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes, windows
from nodeproof.scenario.kubernetes import HOSTNAME_LABEL, Node
from nodeproof.scenario.sources import Log
from nodeproof.scenario.types import Moment

UP_S = 60.0
IPV4, IPV6, SECOND_IPV4, LINK_LOCAL = "10.77.251.1", "fd77::1", "10.77.251.2", "169.254.77.1"
REPLACE_SCRIPT = """
ip addr add "$0/32" dev data && ip addr del "$1/16" dev data && ip addr add "$1/16" dev data || exit 1
ip route replace default via "$2" dev data
"""
"""Arguments: the new address, the old address, the gateway.

A kubelet reports the first address of an interface. The old one is removed and added again behind the new
one, so that the machine stays reachable.
"""
ADD_SCRIPT = (
    'ip addr add "$0/32" dev data && ip -6 addr add "$1/64" dev data nodad && ip addr add "$2/32" dev data'
)
"""Arguments: an IPv4 address, an IPv6 address, a link-local address."""
REFUSED_ADDRESSES = {
    "127.0.0.1": "nodeIP can't be loopback address",
    LINK_LOCAL: "nodeIP can't be a link-local unicast address",
    "224.0.0.1": "nodeIP can't be a multicast address",
}
"""Addresses that a kubelet refuses, with its message."""
NEXT_STATUS = windows.formula("within", "2U", "0", "2U + slack")


def address_report(node: str, type_: str, address: str) -> Moment:
    """Match a write of the Node with this address."""
    addresses = [{"type": type_, "address": address}]
    return moments.written("nodes", {"metadata": {"name": node}, "status": {"addresses": addresses}})


@needs(nodes=2, duration_s="25")
def test_kubelet_without_node_ip_reports_default_route_address(lab: Lab, claim: Expectations) -> None:
    """The machine's hostname differs from the name of the Node, which does not resolve."""
    machine, node = "ip-machine", Node("detected-ip")
    label, booted = {"metadata": {"labels": {HOSTNAME_LABEL: node}}}, moments.booted(machine)
    override_claim, refresh_claim = claim("addresses.hostname-override"), claim("addresses.refresh")

    with lab.record():
        lab.run(actions.join(machine, node=node, flags=["--node-ip="]))
        hostname = lab.run(actions.run_on(machine, "hostname"))
        override_claim.expect_value(hostname, {"stdout": f"{machine}\n"})
        for moment in (moments.created("nodes", node, like=label), address_report(node, "Hostname", node)):
            override_claim.expect(moment, within=UP_S, after=booted)
        default_address = lab.observe(probes.source_address(machine)).value
        default_report = address_report(node, "InternalIP", default_address)
        claim("registration.node-ip-default").expect(default_report, within=UP_S, after=booted)
        addresses = (SECOND_IPV4, default_address, "10.77.0.1")
        replace = actions.run_on(machine, "sh", "-c", REPLACE_SCRIPT, *addresses)
        refresh_claim.expect_value(lab.run(replace), {"status": 0})
        removed = node.became({"status": {"addresses": {"$not": [{"address": default_address}]}}})
        for moment in (address_report(node, "InternalIP", SECOND_IPV4), removed):
            refresh_claim.expect(moment, within=NEXT_STATUS, after=replace.begun)


@needs(nodes=2, duration_s="50")
def test_node_gets_ips_of_node_ip_flag_once_its_machine_has_them(lab: Lab, claim: Expectations) -> None:
    node, kubelet = Node("flag-ip"), "kubelet-flag-ip"
    ipv4, ipv6 = (address_report(node, "InternalIP", address) for address in (IPV4, IPV6))
    add = actions.run_on(node, "sh", "-c", ADD_SCRIPT, IPV4, IPV6, LINK_LOCAL)
    not_on_host_log = Log(kubelet, "failed to validate nodeIP", about=IPV4)
    node_ip_claim, dual_stack_claim = claim("registration.node-ip"), claim("registration.node-ip-dual-stack")
    not_on_host_claim = claim("registration.node-ip-not-on-host")

    with lab.record():
        lab.run(actions.join(node, flags=[f"--node-ip={IPV4},{IPV6}"]))
        families = lab.run(actions.run_on(node, "test", "-e", "/proc/net/if_inet6"))
        disabled, next_step = "IPv6 is disabled on the node", "enable it: sysctl net.ipv6.conf"
        lab.require_lab(families.value["status"] == 0, otherwise=disabled, next_step=next_step)
        lab.wait_for(node.created.after(moments.booted(node), UP_S))
        not_on_host_claim.never(ipv4, throughout=lab.quiet_s, after=node.created)
        node_ip_claim.expect_value(lab.run(add), {"status": 0})
        node_ip_claim.expect_later(dual_stack_claim.expect(ipv4, within=NEXT_STATUS, after=add.begun))
        dual_stack_claim.expect(ipv6, within=NEXT_STATUS, after=add.begun)
        in_order = "jsonpath={.status.addresses[*].address}"
        addresses = lab.run(actions.kubectl("get", "node", node, "-o", in_order))
        dual_stack_claim.expect_value(addresses, {"stdout": f"{IPV4} {IPV6} {node}"})
        logs = [restart_with_refused_address(lab, claim, node, address) for address in REFUSED_ADDRESSES]
        lab.collect(not_on_host_log, *logs)
        not_on_host_claim.expect_later(not_on_host_log.line, within=UP_S, after=moments.booted(node))
        one_family_exit = lab.run(actions.try_kubelet(node, f"--node-ip={IPV4},{SECOND_IPV4}"))
        refusal = {"status": 1, "output": {"$contains": "bad --node-ip"}}
        dual_stack_claim.expect_value(one_family_exit, refusal)


def restart_with_refused_address(lab: Lab, claim: Expectations, node: str, address: str) -> Log:
    """Restart the kubelet with an address that it refuses, and return its log, which the caller collects."""
    log = Log(f"kubelet-{node}", REFUSED_ADDRESSES[address])
    restart = actions.restart_joined(node, f"--node-ip={address}")
    # No earlier kubelet reported this address, so the absence may begin before the restart.
    absence = windows.absence_including_anchor(lab.quiet_s + lab.clear_s)
    not_on_host_claim = claim("registration.node-ip-not-on-host")
    report = address_report(node, "InternalIP", address)

    lab.run(restart)
    not_on_host_claim.never(report, throughout=absence, after=restart.begun)
    not_on_host_claim.expect_later(log.line, within=UP_S, after=restart.begun)
    return log
