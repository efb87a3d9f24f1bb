"""The catalogue of claims on disk: the project's own, and folders that a team adds."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from nodeproof.model.catalogue import SIZE_LIMIT, merge, parse
from nodeproof.model.claim import Claim
from nodeproof.model.problem import Problem

_SCHEMA = "claims.schema.json"


def scenarios_dir() -> Path:
    """Return the folder `scenarios` of the checkout, else of the wheel.

    Raises:
        Problem: Neither has one.
    """
    package = Path(__file__).resolve().parent
    for folder in (package.parents[1] / "scenarios", package / "_data" / "scenarios"):
        if (folder / _SCHEMA).is_file():
            return folder
    raise Problem("the catalogue is missing", str(package), "install nodeproof again")


def load(extra: Sequence[Path] = ()) -> Mapping[str, Claim]:
    """Load all claims by id: first `scenarios/claims`, then the `extra` folders.

    Raises:
        Problem: A folder has no claims, a file is a link out of its folder, a claim is malformed, or two
            files contain the same id.
    """
    own = scenarios_dir()
    schema = json.loads((own / _SCHEMA).read_text(encoding="utf-8"))
    files = [path for folder in (own / "claims", *extra) for path in _files(folder)]
    return merge({str(path): parse(read(path), str(path), schema) for path in files})


def judged(claims: Mapping[str, Claim]) -> Mapping[str, Claim]:
    """Select the claims that have a scenario."""
    return {claim.id: claim for claim in claims.values() if claim.status == "judged"}


def asked_for(claim_id: str, claims: Mapping[str, Claim]) -> Claim:
    """Return the claim with this id.

    Raises:
        Problem: There is no such claim, or no scenario judges it.
    """
    claim = known(claim_id, claims)
    if claim.status != "judged":
        why = f": {claim.reason}" if claim.reason else ""
        raise Problem(
            f"{claim_id} is {claim.status}{why}", "catalogue", "`nodeproof claims` lists the judged claims"
        )
    return claim


def known(claim_id: str, claims: Mapping[str, Claim]) -> Claim:
    """Return the claim with this id, whatever its status.

    Raises:
        Problem: There is no such claim; the message suggests similar ids.
    """
    if claim_id in claims:
        return claims[claim_id]
    near = difflib.get_close_matches(claim_id, claims, n=3)
    hint = f"use one of: {', '.join(near)}" if near else "`nodeproof claims` lists them"
    raise Problem("no such claim", claim_id, hint)


def _files(folder: Path) -> list[Path]:
    if ".." in folder.parts:
        raise Problem("the path of a claims folder contains ..", str(folder), "use a path without ..")
    if not folder.is_dir():
        raise Problem("no such claims folder", str(folder), "use a folder with *.yaml files")
    files = sorted(folder.glob("*.yaml"))
    if not files:
        raise Problem("the folder has no claims", str(folder), "use a folder with *.yaml files")
    inside = folder.resolve()
    for path in files:
        if not path.is_file() or not path.resolve().is_relative_to(inside):
            raise Problem("not a file inside its folder", str(path), "copy the file itself into the folder")
    return files


def read(path: Path) -> str:
    """Return the text of a YAML file.

    Raises:
        Problem: The file is larger than `SIZE_LIMIT`, or not UTF-8.
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        content = file.read(SIZE_LIMIT + 1)
    if len(content) > SIZE_LIMIT:
        raise Problem(f"expected at most {SIZE_LIMIT} bytes, found more", f"{path}:1:1", "split the file")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        column = error.start - (content.rfind(b"\n", 0, error.start) + 1) + 1
        what = f"expected UTF-8, found byte {content[error.start]:#04x}"
        raise Problem(what, f"{path}:{line}:{column}", "save the file as UTF-8") from error
