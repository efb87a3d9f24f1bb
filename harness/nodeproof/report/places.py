"""Where runs lie, for what writes beside them: nothing may be written into one that is there."""

from __future__ import annotations

from pathlib import Path

from nodeproof.model.problem import Problem

PUBLISHED = "published.json"
"""By it a published copy of a run is told from all else."""
_LEFT = ("run.json", "verdicts.json", "shard.json", "declared-claims.json")
_MADE = ("scenarios", "labs", "allure-results")


def refuse_inside(folder: Path, failed: str) -> None:
    """Raises Problem where a folder, which need not be there, is a run or a copy of one, or in one."""
    for around in (folder.resolve(), *folder.resolve().parents):
        if _is_run(around):
            raise Problem(f"{failed}: {around.name} is a run", str(folder), "name a folder outside of it")


def _is_run(folder: Path) -> bool:
    """By more than one thing in it: a folder of somebody else's may have a run.json, too."""
    if (folder / PUBLISHED).is_file() and (folder / "site").is_dir():
        return True
    is_left = any((folder / name).is_file() for name in _LEFT)
    made = sum((folder / part).is_dir() for part in _MADE)
    return made == len(_MADE) or (is_left and made > 0)
