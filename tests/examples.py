"""The Python of the documentation, completed into runnable scenarios."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.documented import TOP

SCENARIOS, CONTRIBUTING = TOP / "docs" / "scenarios.md", TOP / "CONTRIBUTING.md"
_FILE = re.compile(r"^`([\w./]+)`:\n\n```\w+\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_DIFF = re.compile(r"^--- (?:/dev/null|a/.*)\n\+\+\+ b/([\w./]+)\n((?:\+.*\n)+)", re.MULTILINE)
_BLOCK = re.compile(r"(?<=\n\n)((?:    .*\n)+)")
_PYTHON = re.compile(r"lab\.\w+\(|^@", re.MULTILINE)
CLAIM = "example.is-so"
INI = "[pytest]\nnodeproof_claims = claims\n"
CATALOGUE = f"""\
- id: {CLAIM}
  area: example
  statement: What an example of the documentation shows is so.
  kind: behaviour
  subject: control-plane
  versions: ">=1.18"
  page:
    v1.28: false
  constants: []
  sources: ["docs/scenarios.md"]
"""


def files(page: Path) -> Mapping[str, str]:
    """Return the files of a page's complete example by name."""
    return dict(_FILE.findall(page.read_text()))


def fragments() -> list[str]:
    """Return the scenario fragments in the indented blocks of the pages about scenarios."""
    pages = (SCENARIOS, *sorted((TOP / "docs" / "scenarios").glob("*.md")))
    texts = (_FENCED.sub("", page.read_text()) for page in pages)
    blocks = (textwrap.dedent(block) for text in texts for block in _BLOCK.findall(text))
    return [block for block in blocks if _PYTHON.search(block)]


def added(page: Path) -> Mapping[str, str]:
    """Return what a page's diffs add at the beginning of each file."""
    return {
        name: "\n".join(line.removeprefix("+") for line in body.splitlines())
        for name, body in _DIFF.findall(page.read_text())
    }


@dataclass(frozen=True)
class Around:
    """The parts that make a scenario of a fragment.

    Its `needs` and its claim, what comes before it and after it, and what happens `meanwhile`, for its `...`.
    """

    needs: str = "nodes=2, faulted=1"
    claim: str = CLAIM
    before: str = ""
    meanwhile: str = ""
    after: str = ""


_RECORDS = "with lab.record():"
AROUND: Mapping[str, Around] = {
    "static = mirror_pod(node)": Around(
        before=_RECORDS,
        after="""\
            runs = became("pods", static.name, {"status": {"phase": "Running"}}, static.namespace)
            seen = lab.wait_for(runs.after(recording_began(), windows.up_to(60)))
    claim(CLAIM).expect_later(seen)
""",
    ),
    "storage = volumes()": Around(
        needs='nodes=2, faulted=1, components=(ATTACHER,), features=("volumes",)',
        after="""\
        seen = lab.wait_for(attached.after(pod_created(pod.namespace, pod.name), windows.up_to(60)))
        delete = kubectl("delete", "pod", "--namespace", pod.namespace, pod.name)
        lab.run(delete)
        detached = removed("volumeattachments", attachment(pvc, node))
        lab.wait_for(detached.after(delete.begun, windows.up_to(60)))
    claim(CLAIM).expect_later(seen)
""",
    ),
    "@standing(swap, 256)": Around(
        needs='nodes=2, faulted=1, features=("swap", "systemd")',
        after="""\
    with lab.record():
        total = lab.observe(meminfo(node, "SwapTotal"))
    claim(CLAIM).expect_later(shows(total, {"$not": 0}))
""",
    ),
    'answer = lab.run(dry_run("PATCH", f"/api/v1/nodes/{other}", noted, by=kubelet_of(node)))': Around(
        claim="node-restriction.modify-own-only",
        before=f"""\
other, noted = lab.others[0], {{"metadata": {{"annotations": {{"example.com/noted": "yes"}}}}}}
{_RECORDS}
""",
    ),
    'asked = audit(verb="patch", resource="nodes", subresource="status", user=f"system:node:{node}")': Around(
        before=f"""\
often = kubelet_settings(node, nodeStatusUpdateFrequency="1s", nodeStatusReportFrequency="1s")
{_RECORDS}
""",
        meanwhile="""\
with lab.inject(often) as fault:
    lost = condition_became(node, "Ready", "Unknown")
    lab.wait_for(lost.never_after(fault.injected_at, windows.absence(8)))
""",
    ),
    (
        "polite, deaf = lab.run("
        "run_witnesses(Witness(pre_stop_s=3), Witness(grace_s=15, ignores_sigterm=True), on=node))"
    ): Around(
        needs='nodes=2, faulted=1, features=("real-pods", "systemd")',
        before=_RECORDS,
        meanwhile="""\
lab.run(kubectl("delete", "pod", "--namespace", polite.namespace, polite.name, deaf.name))
""",
        after="""\
    claim(CLAIM).expect_later(sigterm(polite.name).after(pre_stop_began(polite.name), windows.up_to(15)))
""",
    ),
}
"""The code around each fragment, by its first line."""


def scenarios(fragment_list: list[str]) -> str:
    """Return a file of scenarios, one per fragment. Raises KeyError for an unknown fragment."""
    head = f"from nodeproof.scenario import *\n\nCLAIM = {CLAIM!r}\n"
    return "\n\n".join([head, *map(_scenario, range(len(fragment_list)), fragment_list)])


def _scenario(number: int, fragment: str) -> str:
    around = AROUND[fragment.partition("\n")[0]]
    decorators = fragment if fragment.startswith("@") else ""
    prefix = "" if decorators else fragment
    depth = "    " * (1 + around.before.rstrip().endswith(_RECORDS))
    body = prefix.replace("...\n", around.meanwhile)
    return "\n".join(
        [
            f"@claims({around.claim!r})",
            f"@needs({around.needs})",
            *decorators.splitlines(),
            f"def test_{number}(lab: Lab, claim: Expectations) -> None:",
            "    node = lab.target",
            textwrap.indent(around.before.rstrip(), "    "),
            textwrap.indent(body.rstrip(), depth),
            around.after,
        ]
    )


def write(text: str, folder: Path) -> None:
    """Write a folder of scenarios as a user has it."""
    (folder / "claims").mkdir(parents=True)
    (folder / "pytest.ini").write_text(INI)
    (folder / "claims" / "example.yaml").write_text(CATALOGUE)
    (folder / "test_examples.py").write_text(text)
