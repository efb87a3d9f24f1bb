"""The Python that the documentation shows, made into scenarios that run: what a page leaves out is added."""

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
_DIFF = re.compile(r"^--- /dev/null\n\+\+\+ b/([\w./]+)\n((?:\+.*\n)+)", re.MULTILINE)
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
    """The files of a page's complete example, by their names."""
    return dict(_FILE.findall(page.read_text()))


def fragments(page: Path) -> list[str]:
    """The pieces of scenarios in a page's indented blocks."""
    blocks = (textwrap.dedent(block) for block in _BLOCK.findall(_FENCED.sub("", page.read_text())))
    return [block for block in blocks if _PYTHON.search(block)]


def new_files(page: Path) -> Mapping[str, str]:
    """What a page's diffs have in files that they make."""
    return {
        name: "\n".join(line.removeprefix("+") for line in body.splitlines())
        for name, body in _DIFF.findall(page.read_text())
    }


@dataclass(frozen=True)
class Around:
    """What makes a scenario of a fragment: its `needs` and its claim, what comes before it and after it, and
    what happens `meanwhile`, for its `...`.
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
            seen = lab.wait_for(runs.after(recording_began(), windows.prompt(60)))
    judge(CLAIM, seen)
""",
    ),
    "storage = volumes()": Around(
        needs='nodes=2, faulted=1, components=(ATTACHER,), features=("volumes",)',
        after="""\
        seen = lab.wait_for(attached.after(pod_created(pod.namespace, pod.name), windows.prompt(60)))
        delete = kubectl("delete", "pod", "--namespace", pod.namespace, pod.name)
        lab.do(delete)
        detached = removed("volumeattachments", attachment(claim, node))
        lab.wait_for(detached.after(delete.begun, windows.prompt(60)))
    judge(CLAIM, seen)
""",
    ),
    "@standing(swap, 256)": Around(
        needs='nodes=2, faulted=1, features=("swap", "systemd")',
        after="""\
    with lab.record():
        total = lab.look(meminfo(node, "SwapTotal"))
    judge(CLAIM, shows(total, {"$not": 0}))
""",
    ),
    'answer = lab.do(would("PATCH", f"/api/v1/nodes/{other}", noted, by=kubelet_of(node)))': Around(
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
with lab.inject(often) as cut:
    lost = condition_became(node, "Ready", "Unknown")
    lab.wait_for(lost.never_after(cut.began, windows.absence(8)))
""",
    ),
    (
        "polite, deaf = lab.do(run_witnesses(Witness(pre_stop_s=3), Witness(grace_s=15, deaf=True), on=node))"
    ): Around(
        needs='nodes=2, faulted=1, features=("real-pods", "systemd")',
        before=_RECORDS,
        meanwhile="""\
lab.do(kubectl("delete", "pod", "--namespace", polite.namespace, polite.name, deaf.name))
""",
        after="""\
    judge(CLAIM, sigterm(polite.name).after(pre_stop_began(polite.name), windows.prompt(15)))
""",
    ),
}
"""What is around each fragment, by its first line."""


def scenarios(fragment_list: list[str]) -> str:
    """A file of scenarios, one of each fragment. Raises KeyError on one that nothing is known around."""
    head = f"from nodeproof.plugin import Judge\nfrom nodeproof.scenario import *\n\nCLAIM = {CLAIM!r}\n"
    return "\n\n".join([head, *map(_scenario, range(len(fragment_list)), fragment_list)])


def _scenario(number: int, fragment: str) -> str:
    around = AROUND[fragment.partition("\n")[0]]
    decorators = fragment if fragment.startswith("@") else ""
    told = "" if decorators else fragment
    depth = "    " * (1 + around.before.rstrip().endswith(_RECORDS))
    body = told.replace("...\n", around.meanwhile)
    return "\n".join(
        [
            f"@claims({around.claim!r})",
            f"@needs({around.needs})",
            *decorators.splitlines(),
            f"def test_{number}(lab: Stage, judge: Judge) -> None:",
            "    node = lab.target",
            textwrap.indent(around.before.rstrip(), "    "),
            textwrap.indent(body.rstrip(), depth),
            around.after,
        ]
    )


def write(text: str, folder: Path) -> None:
    """A folder of scenarios as a user has it."""
    (folder / "claims").mkdir(parents=True)
    (folder / "pytest.ini").write_text(INI)
    (folder / "claims" / "example.yaml").write_text(CATALOGUE)
    (folder / "test_examples.py").write_text(text)
