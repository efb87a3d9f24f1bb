"""Standing faults: injected before the first of several scenarios, healed when a scenario needs others."""

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
    """A standing fault could not be injected."""


class Standing:
    """The standing faults of a lab, on the target of its scenarios; none before `begin`."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._key, self._node = "", ""
        self._faults: Sequence[Fault] = ()
        self._active = ExitStack()

    def is_fit(self, makes: Sequence[Make]) -> bool:
        """Return whether exactly these faults are injected, as confirmed by probes. Raises MachineError."""
        if key(makes) != self._key or self._lab.usable()[:1] != [self._node]:
            return False
        return all(map(self._lab.safety.injector.is_in, self._faults))

    def begin(self, makes: Sequence[Make], needs: Needs) -> None:
        """Inject the faults, and wait until nodes are Ready.

        Raises:
            DoesNotStand: A fault could not be injected; those before it stay until `end`.
        """
        self._key, self._node = key(makes), self._lab.usable()[0]
        self._faults = [make(self._node) for make in makes]
        declared = Declared((self._node,), needs.components, needs.radius)
        description = ""
        try:
            for fault in self._faults:
                description = f"{fault.to_json()['fault']} on {self._node}"
                self._active.enter_context(self._lab.safety.injector.inject(fault, declared, _record_nothing))
            self._lab.wait_nodes_ready(self._lab.usable(), CLEAN_LIMIT_S)
        except (NotInjected, Refused, Unavailable, OutsideError, Problem, OSError) as error:
            raise DoesNotStand(f"{description}: {error}", "@standing", "see the lab's logs") from error

    def end(self) -> None:
        """Heal the faults in reverse order."""
        self._active.close()


def _record_nothing(*_args: object, **_kwargs: object) -> None:
    """Ignore the injector's steps: each recording describes the standing faults when it begins."""
