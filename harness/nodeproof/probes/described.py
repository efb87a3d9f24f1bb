"""The output of `kubectl describe node`, by section."""

from __future__ import annotations

from nodeproof.labs.client.lab import Lab
from nodeproof.model.problem import Problem
from nodeproof.probes.probe import COMMAND_LIMIT_S, Probe


def described(node: str) -> Probe:
    """Return a probe of the sections of a Node's description: the value of each key in them.

    The key is that of a `key: value` line, or the first word of a table row, whose value is the second word.
    """

    def read(lab: Lab) -> dict[str, dict[str, str]]:
        completed = lab.cluster.run_kubectl(("describe", "node", node), COMMAND_LIMIT_S, "")
        if completed["status"] != 0:
            raise Problem(
                f"kubectl describe: {completed['stderr']}".strip(), f"lab {lab.name}", "see its API server"
            )
        return sections(str(completed["stdout"]))

    return Probe("kubectl describe node", node, read)


def sections(text: str) -> dict[str, dict[str, str]]:
    """Return the sections of a description by their headings."""
    parts: dict[str, dict[str, str]] = {}
    rows: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if words and not line.startswith(" "):
            rows = parts.setdefault(line.partition(":")[0], {})
        elif len(words) > 1:
            rows[words[0].rstrip(":")] = words[1]
            key, colon, value = line.partition(":")
            if colon:
                rows[key.strip()] = value.strip()
    return parts
