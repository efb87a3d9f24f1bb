"""A kubelet with shutdown grace periods but without a system bus."""

from nodeproof.scenario import Expectations, Lab, actions, moments, needs, probes
from nodeproof.scenario.kubernetes import Node
from nodeproof.scenario.sources import Log

NODE, PERIOD, LOG_S = Node("no-bus"), "23s", 30
HIDDEN = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
HIDE = f"[ ! -d /run/systemd/system ] || sed -i '$a{HIDDEN}' /etc/default/kubelet"
"""A machine that systemd did not boot has no system bus anyway."""


@needs(nodes=2, duration_s="45")
def test_kubelet_without_dbus_logs_it_and_runs_without_graceful_shutdown(
    lab: Lab, claim: Expectations
) -> None:
    """Only the log of the kubelet shows it: the settings are accepted, and the Node is Ready."""
    starts = Log(f"kubelet-{NODE}", "Kubelet version")
    fails = Log(f"kubelet-{NODE}", "Failed to start node shutdown manager")
    restart, needs_systemd = actions.restart_joined(NODE), claim("graceful-shutdown.needs-systemd")
    # The log must begin before the recording to show that nothing is missing.
    lab.run(actions.join(NODE, shutdownGracePeriod=PERIOD))
    for state in ("create", "condition=Ready"):
        lab.run(actions.kubectl("wait", f"--for={state}", f"node/{NODE}", "--timeout=60s"))

    with lab.record():
        needs_systemd.expect_value(lab.run(actions.run_on(NODE, "sh", "-c", HIDE)), {"status": 0})
        lab.run(restart)
        # On a slow machine, the first line of the log comes long after the end of the action.
        needs_systemd.never(NODE.unknown, throughout=10 + LOG_S + lab.clear_s, after=restart.ended)
        needs_systemd.expect_value(lab.observe(probes.kubelet_field(NODE, "shutdownGracePeriod")), PERIOD)
        conditions = lab.observe(probes.node_field(NODE, "status.conditions"))
        needs_systemd.expect_value(conditions, [{"type": "Ready", "status": "True"}])
        lab.collect(starts, fails)
    start = moments.first_after(starts.line, after=restart.begun)
    failure = moments.first_after(fails.line, after=start)
    needs_systemd.expect_later(failure, within=LOG_S, after=start)
