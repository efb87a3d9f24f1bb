"""What stands in a worker's lab for several scenarios: faults that are put in once, before the first of them,
and stay until one comes that asks for something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from nodeproof.faults import Fault
from nodeproof.labs.client.lab import CLEAN_LIMIT_S, Lab
from nodeproof.model.needs import Needs
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.safety.guard import Declared, Refused
from nodeproof.safety.injector import NotInjected, Unavailable
from nodeproof.session.asked import Make, key


class DoesNotStand(Problem):
    """What a scenario wants to stand before it begins could not be put in."""


class Standing:
    """What stands in a lab, on the node that its scenarios are about; nothing before `begin`."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._asked, self._node = "", ""
        self._faults: Sequence[Fault] = ()
        self._held = ExitStack()

    def is_fit(self, makes: Sequence[Make]) -> bool:
        """Whether exactly this stands, and probes see it. Raises MachineError."""
        if key(makes) != self._asked or self._lab.usable()[:1] != [self._node]:
            return False
        return all(map(self._lab.safety.injector.is_in, self._faults))

    def begin(self, makes: Sequence[Make], needs: Needs) -> None:
        """Put it in, and wait until nodes are Ready. Raises DoesNotStand; what went in stays until `end`."""
        self._asked, self._node = key(makes), self._lab.usable()[0]
        self._faults = [make(self._node) for make in makes]
        declared = Declared((self._node,), needs.components, needs.radius)
        named = ""
        try:
            for fault in self._faults:
                named = f"{fault.to_json()['fault']} on {self._node}"
                self._held.enter_context(self._lab.safety.injector.inject(fault, declared, _nobody_records))
            self._lab.wait_nodes_ready(self._lab.usable(), CLEAN_LIMIT_S)
        except (NotInjected, Refused, Unavailable, OutsideError, Problem, OSError) as error:
            raise DoesNotStand(f"{named}: {error}", "@standing", "see the lab's logs") from error

    def end(self) -> None:
        """Heal all of it, the last first."""
        self._held.close()


def _nobody_records(*_told: object, **_known: object) -> None:
    """A recording is told when it begins."""
