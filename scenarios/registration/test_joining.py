"""A machine that joins: who makes its Node, and what that carries from the beginning."""

from nodeproof.plugin import Judge
from nodeproof.scenario import (
    Stage,
    audit,
    booted,
    claims,
    counted,
    default_of,
    join,
    made,
    needs,
    recording_began,
    removed,
    shows,
    try_flags,
    windows,
)

NEW = "joiner"
TAINTS = [
    {"key": "nodeproof.dev/new", "value": "yes", "effect": "NoSchedule"},
    {"key": "nodeproof.dev/young", "value": "yes", "effect": "PreferNoSchedule"},
]
UP_S = 60.0
"""From a boot to a registered node, on an emulated machine."""
REFUSED = {
    "a=1": "invalid taint spec",
    "a=1:Never": "unsupported taint effect",
    "a=1:NoSchedule,a=2:NoSchedule": "duplicated taints",
}


@claims(
    "registration.self-register-default", "registration.with-taints", "registration.kubeconfig-credentials"
)
@needs(nodes=2)
def test_a_kubelet_registers_its_node_with_its_taints_under_its_own_name(lab: Stage, judge: Judge) -> None:
    joins = join(NEW, registerWithTaints=TAINTS)
    own, others = (
        audit(verb="create", resource="nodes", name=NEW, user=user)
        for user in (f"system:node:{NEW}", {"$not": f"system:node:{NEW}"})
    )
    with lab.record():
        # Requests that come within the slack of an end of what is counted may lie beyond it.
        quiet = windows.absence(lab.quiet_s)
        lab.wait_for(made("nodes", NEW).never_after(recording_began(), quiet))
        lab.do(joins)
        registered = lab.wait_for(made("nodes", NEW).after(booted(NEW), windows.prompt(UP_S)))
        tainted = made("nodes", NEW, like={"spec": {"taints": TAINTS}})
        from_the_beginning = lab.wait_for(tainted.after(made("nodes", NEW), windows.prompt(1)))
        lab.wait_for(removed("nodes", NEW).never_after(made("nodes", NEW), quiet))
        lab.hear(own, others)

    judge("registration.self-register-default", registered)
    judge("registration.self-register-default", default_of("registerNode"))
    judge("registration.with-taints", from_the_beginning)
    for source, low, high in ((own, 1, 9), (others, 0, 0)):
        often = counted(source.request, low, high, after=recording_began(), until=source.heard)
        judge("registration.kubeconfig-credentials", often)


@claims("registration.with-taints-format")
@needs(nodes=2)
def test_a_kubelet_refuses_taints_that_are_not_written_as_taints(lab: Stage, judge: Judge) -> None:
    with lab.record():
        taken = lab.do(try_flags("kubelet", "--register-with-taints=a=1:NoSchedule,b=2:NoExecute"))
        refused = {
            said: lab.do(try_flags("kubelet", f"--register-with-taints={taints}"))
            for taints, said in REFUSED.items()
        }
    judge("registration.with-taints-format", shows(taken, {"status": 0}))
    for said, seen in refused.items():
        judge("registration.with-taints-format", shows(seen, {"status": 1, "stderr": {"$contains": said}}))
