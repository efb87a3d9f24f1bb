"""Another version of a component of the control plane."""

from __future__ import annotations

from dataclasses import dataclass

from nodeproof.faults.fault import has_booted, succeeds
from nodeproof.faults.settings import Restart
from nodeproof.machines.machine import Machine, Shell


@dataclass(frozen=True)
class Upgrade(Restart):
    """Restart of the component `node` with its executable of `version`; healing restarts it with the lab's.

    The lab has executables of `lab.upgrade_version` (`--upgrade-to`). Upgrade kube-apiserver first: no
    component may be newer (https://kubernetes.io/releases/version-skew-policy/#supported-component-upgrade-order).
    The process gets no grace period. The component must be declared: `needs(components=...)`.
    """

    name = "upgrade"
    suffix = "version"
    version: str

    @classmethod
    def leftovers_on(cls, machine: Shell) -> list[Upgrade]:
        return [cls(component, "", id=fault_id) for component, fault_id in cls.files_on(machine)]

    @property
    def content(self) -> str:
        return self.version

    def available(self, machine: Shell) -> str:
        """Require an unchanged component of which the lab has an executable of the version."""
        reason = super().available(machine)
        if reason or succeeds(machine, "test", "-e", f"./versions/{self.version}/{self.node}"):
            return reason
        return f"the lab has no {self.node} {self.version}: use --upgrade-to"

    def is_injected(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its executable is of the version."""
        return has_booted(machine) and self._running_version(machine) == self.version

    def is_healed(self, machine: Machine) -> bool:
        """Return whether the component is healthy and its executable is of another version."""
        return has_booted(machine) and self._running_version(machine) != self.version

    def _running_version(self, machine: Machine) -> str:
        """Return the version that the executable of the component's process prints."""
        executable = self.command_line(machine)[0]
        return self.run(machine, [executable, "--version"]).strip().removeprefix("Kubernetes ")
