"""A kubelet that was given time for shutdowns, and finds no system bus on which to be told of them."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Log,
    Stage,
    claims,
    condition_became,
    field_of,
    join,
    kubectl,
    kubelet_field,
    needs,
    next_of,
    run_on,
    shows,
    start_again,
    windows,
)

NAME, PERIOD, UP_S, TOLD_S, SPAWNED_S = "no-bus", "23s", 60, 30, 10
HIDDEN = "DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent"
HIDE = f"[ ! -d /run/systemd/system ] || sed -i '$a{HIDDEN}' /etc/default/kubelet"
"""A machine that systemd did not boot has none anyway."""
STARTS, FAILS = "Kubelet version", "Failed to start node shutdown manager"


@claims("graceful-shutdown.needs-systemd")
@needs(nodes=2, lasts="45")
def test_a_kubelet_without_a_system_bus_says_so_and_goes_on_without_graceful_shutdown(
    lab: Stage, judge: Judge
) -> None:
    """Its log alone tells: the settings are taken, and the node is Ready."""
    starts, fails = (Log(f"kubelet-{NAME}", text) for text in (STARTS, FAILS))
    again, lost = start_again(NAME), condition_became(NAME, "Ready", "Unknown")
    # What its log says before the recording began has to be there to tell that nothing is missing.
    lab.do(join(NAME, shutdownGracePeriod=PERIOD))
    for is_so in ("create", "condition=Ready"):
        lab.do(kubectl("wait", f"--for={is_so}", f"node/{NAME}", f"--timeout={UP_S}s"))

    with lab.record():
        hidden = lab.do(run_on(NAME, "sh", "-c", HIDE))
        lab.do(again)
        # Its first line comes when the action has long ended, on a slow machine.
        lives = lab.wait_for(lost.never_after(again.ended, windows.absence(SPAWNED_S + TOLD_S + lab.clear_s)))
        taken = lab.look(kubelet_field(NAME, "shutdownGracePeriod"))
        said = lab.look(field_of(f"/api/v1/nodes/{NAME}", "status.conditions"))
        lab.hear(starts, fails)

    start = next_of(starts.line, after=again.begun)
    for check in (
        shows(hidden, {"status": 0}),
        next_of(fails.line, after=start).after(start, windows.prompt(TOLD_S)),
        shows(taken, PERIOD),
        lives,
        shows(said, [{"type": "Ready", "status": "True"}]),
    ):
        judge("graceful-shutdown.needs-systemd", check)
