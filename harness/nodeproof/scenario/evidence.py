"""What a scenario gathers on the nodes themselves, for its recording: words of witnesses, looks, journals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from nodeproof.checks.witnessed import journal
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod
from nodeproof.labs.client.lab import Lab
from nodeproof.machines.machine import MachineError
from nodeproof.recording.recorder import Recording
from nodeproof.recording.testimony import BootClock, Word, journal_of, read_clock, words_of

INHIBITORS = "shutdown inhibitors"
SWAP_LIMIT = "memory.swap.max"
_COMMAND_LIMIT_S = 30.0
_LOGIN = ("org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager")


@dataclass
class Evidence:
    """Gathers on one lab's nodes; remembers each node's clock in the boot that its witnesses live in."""

    lab: Lab
    _clocks: dict[str, BootClock] = field(default_factory=dict)

    def keep_clock(self, node: str) -> None:
        """Measure a node's clock in this boot: its witnesses write by it. Raises MachineError."""
        self._clocks[node] = read_clock(self.lab.fleet.machine(node))

    def hear(self, recording: Recording, pods: Iterable[Pod]) -> None:
        """Write down what witnesses told since the recording began. Raises MachineError."""
        for made in pods:
            clock, machine = self._clocks[made.node], self.lab.fleet.machine(made.node)
            self._write(recording, made.node, made.name, partial(words_of, machine, made.name, clock))

    def hear_journal(self, recording: Recording, node: str, unit: str) -> None:
        """Write down what a unit logged since the recording began, in the boot of `keep_clock`.

        Raises MachineError.
        """
        clock, machine = self._clocks[node], self.lab.fleet.machine(node)
        self._write(recording, node, journal(node, unit), partial(journal_of, machine, unit, clock))

    def look_at_inhibitors(self, recording: Recording, node: str) -> None:
        """Write down who holds locks on the node's shutdown: `what who why mode`, a line each."""
        asked = time.monotonic()
        listed = json.loads(self._run(node, ["busctl", "--json=short", "call", *_LOGIN, "ListInhibitors"]))
        lines = [" ".join(entry[:4]) for entry in listed["data"][0]]
        recording.append("observed", what=INHIBITORS, subject=node, value="\n".join(lines), asked_t=asked)

    def look_at_swap_limit(self, recording: Recording, made: Pod) -> None:
        """Write down how much swap the kernel lets a pod have (bytes). Raises ApiError, MachineError."""
        asked = time.monotonic()
        found = self.lab.cluster.api.get(pod_path(made.namespace, made.name))
        container = str(found["status"]["containerStatuses"][0]["containerID"]).rpartition("/")[2]
        scope = f"cri-containerd-{container}.scope"
        find = ["find", "/sys/fs/cgroup", "-path", f"*/{scope}/{SWAP_LIMIT}", "-exec", "cat", "{}", ";"]
        value = self._run(made.node, find).strip()
        recording.append("observed", what=SWAP_LIMIT, subject=made.name, value=value, asked_t=asked)

    def restart_kubelet(self, recording: Recording, node: str) -> None:
        """Let systemd restart the node's kubelet, whatever becomes of it. Raises MachineError."""
        self.keep_clock(node)
        recording.append("machine", node=node, step="kubelet-restarted")
        self._run(node, ["systemctl", "restart", "kubelet.service"])

    def _write(self, recording: Recording, node: str, by: str, read: Callable[[], Iterator[Word]]) -> None:
        until_t, since_t = time.monotonic(), recording.history().began_t
        for word in list(read()):
            if word.t >= since_t:
                recording.append("told", word.t, by=by, what=word.what)
        clock = self._clocks[node]
        facts = {"by": by, "node": node, "boot_id": clock.boot_id, "error_s": round(clock.error_s, 6)}
        recording.append("heard", until_t, **facts)

    def _run(self, node: str, argv: list[str]) -> str:
        done = self.lab.fleet.machine(node).run(argv, deadline_s=_COMMAND_LIMIT_S)
        if done.status != 0:
            raise MachineError(f"{node}: {argv[0]}: {done.stderr.strip()}")
        return done.stdout
