"""The tree of Allure's first page: each claim below its own heading only, in the order of the page.

Allure makes it of labels that know nothing of each other: a scenario with claims of two headings puts each of
its claims below both, and all stand in the order in which scenarios ran.
"""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from nodeproof.model.claim import Claim
from nodeproof.report import behaviours

Json = Any
_TREE = re.compile(r'd\("(widgets/(?:[^"/]+/)?tree\.json)","([A-Za-z0-9+/=]*)"\)')


def arrange(html: str, known: Mapping[str, Claim]) -> str:
    """Allure's page in one file, its trees put right; what is no claim of the catalogue stays as it is."""

    def put_right(found: re.Match[str]) -> str:
        tree = json.loads(base64.b64decode(found[2]))
        _arrange(tree, known)
        return f'd("{found[1]}","{base64.b64encode(json.dumps(tree).encode()).decode()}")'

    return _TREE.sub(put_right, html)


def _arrange(tree: Json, known: Mapping[str, Claim]) -> None:
    headings, placed = behaviours.order(known)
    groups, root = tree["groupsById"], tree["root"]
    ours = [name for name in root.get("groups", ()) if groups[name]["name"] in headings]
    for name in ours:
        _put_right(groups[name], tree, placed)
    empty = {name for name in ours if not groups[name]["statistic"]["total"]}
    kept = [name for name in root.get("groups", ()) if name not in empty]
    root["groups"] = sorted(kept, key=lambda name: headings.get(groups[name]["name"], len(headings)))


def _put_right(heading: Json, tree: Json, placed: Mapping[str, tuple[str, int]]) -> None:
    groups, title, below = tree["groupsById"], heading["name"], heading.get("groups", ())
    where = {name: placed.get(groups[name]["name"], (title, len(placed))) for name in below}
    own = [name for name in below if where[name][0] == title]
    heading["groups"] = sorted(own, key=lambda name: where[name][1])
    leaves = {leaf for name in own for leaf in groups[name].get("leaves", ())} | set(
        heading.get("leaves", ())
    )
    told = Counter(tree["leavesById"][leaf]["status"] for leaf in leaves)
    heading["statistic"] = {"total": len(leaves), **told}
    for name in own:
        _place(groups[name], tree["leavesById"], where[name][1])


def _place(group: Json, leaves: Json, place: int) -> None:
    """Allure's page sorts groups by the least order of their scenarios, then by when the first began. So each
    claim has entries of its own, which lead to the same scenarios, and begin by the claim's place.
    """
    names = group.get("leaves", ())
    group["leaves"] = [f"{place}.{name}" for name in names]
    for order, name in enumerate(names, 1):
        leaves[f"{place}.{name}"] = {**leaves[name], "groupOrder": order, "start": place}
