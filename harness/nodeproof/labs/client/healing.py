"""Labs that run, healed by a process that has no other business with them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from nodeproof.labs.client import registry
from nodeproof.labs.client.leases import InUse
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.ledger import Ledger


def heal(name: str, zone: str = "") -> None:
    """Heal a lab that nobody uses, or a zone of it; one that is still starting has no fault.

    Raises InUse, and Problem when it can't be healed or that can't be proven.
    """
    lab = None
    try:
        if registry.client(name).status()["phase"] != "ready":
            return
        lab = registry.attach(name)
        if zone:
            lab.lease(zone)
        else:
            lab.leases.take_lab()
        left = lab.safety.heal_unfinished()
        lab.tidy()
    except (OutsideError, OSError) as error:
        raise Problem(str(error), f"lab {name}", f"run `nodeproof down --lab-name {name}`") from error
    finally:
        if lab is not None:
            lab.close()
    if left:
        raise Problem(f"not proven healed: {', '.join(left)}", f"lab {name}", "run `nodeproof down`")


def heal_whole(name: str) -> None:
    """Heal what somebody left who had a lab to himself: who leases a zone of it would not find that. In a lab
    that is in use it is whoever uses it who does. Raises Problem.
    """
    if any(not entry.lease for entry in Ledger(name).unfinished()):
        with contextlib.suppress(InUse):
            heal(name)


def heal_abandoned(mine: str, report: Callable[[str], None]) -> None:
    """Heal every lab but `mine` in which a run left a fault and that nobody uses.

    What can't be healed is reported: it is no reason not to use another lab. One that goes meanwhile took its
    faults with it.
    """
    for name in registry.running():
        if name == mine or not Ledger(name).unfinished():
            continue
        try:
            heal(name)
            report(f"lab {name}: what an earlier run left is healed")
        except InUse:
            continue
        except Problem as problem:
            if name in registry.running():
                report(f"lab {name} is not healed: {problem}")
