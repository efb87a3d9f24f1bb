"""What `kubectl describe node` prints, by its sections."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.problem import Problem
from nodeproof.probes.probe import COMMAND_LIMIT_S, Probe


def described(node: str) -> Probe:
    """The sections of a Node's description: what stands behind each `key:` of theirs, or the first two words
    of each row of a table.
    """

    def read(lab: Lab) -> dict[str, dict[str, str]]:
        done = lab.cluster.run_kubectl(("describe", "node", node), COMMAND_LIMIT_S, "")
        if done["status"] != 0:
            raise Problem(
                f"kubectl describe: {done['stderr']}".strip(), f"lab {lab.name}", "see its API server"
            )
        return sections(str(done["stdout"]))

    return Probe("kubectl describe node", node, read)


def sections(text: str) -> dict[str, dict[str, str]]:
    """The parts of a description that are below a heading."""
    found: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith(" "):
            rows = found.setdefault(line.partition(":")[0], {})
        elif len(words) > 1:
            rows[words[0].rstrip(":")] = words[1]
            key, colon, value = line.partition(":")
            if colon:
                rows[key.strip()] = value.strip()
    return found
