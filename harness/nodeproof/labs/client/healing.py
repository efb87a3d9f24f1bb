"""Heals running labs from a process that does not use them otherwise."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from nodeproof.labs.client import registry
from nodeproof.labs.client.leases import InUse
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.ledger import Ledger


def heal(name: str, zone: str = "") -> None:
    """Heal an unused lab, or one of its zones; a lab that is still starting has no faults.

    Raises:
        InUse: another process uses it.
        Problem: it cannot be healed, or the heal cannot be proven.
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
        unproven = lab.safety.heal_unfinished()
        lab.tidy()
    except (OutsideError, OSError) as error:
        raise Problem(str(error), f"lab {name}", f"run `nodeproof down --lab-name {name}`") from error
    finally:
        if lab is not None:
            lab.close()
    if unproven:
        raise Problem(f"not proven healed: {', '.join(unproven)}", f"lab {name}", "run `nodeproof down`")


def heal_whole(name: str) -> None:
    """Heal the faults of an earlier user of the whole lab, which lessees of zones do not see.

    Do nothing if the lab is in use: its user heals them. Raises Problem.
    """
    if any(not entry.lease for entry in Ledger(name).unfinished()):
        with contextlib.suppress(InUse):
            heal(name)


def heal_abandoned(mine: str, report: Callable[[str], None]) -> None:
    """Heal every unused lab, except `mine`, in which a run left a fault.

    Failures are only reported, as another lab can still be used. A lab that ends meanwhile took its faults
    along.
    """
    for name in registry.running():
        if name == mine or not Ledger(name).unfinished():
            continue
        try:
            heal(name)
            report(f"lab {name}: healed the faults of an earlier run")
        except InUse:
            continue
        except Problem as problem:
            if name in registry.running():
                report(f"lab {name} is not healed: {problem}")
