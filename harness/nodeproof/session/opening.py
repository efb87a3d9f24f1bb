"""Open a scenario: provide a clean lab that has what it needs, or a verdict with what is missing."""

from __future__ import annotations

import time
from functools import partial

import allure
import pytest

from nodeproof.labs.client.lab import TooFewNodes
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report.rundir import scenario_dir
from nodeproof.scenario.stage import Stage
from nodeproof.session import asked
from nodeproof.session.closing import STAGE, skip_with_verdict, store_unrecorded
from nodeproof.session.judging import Unproven
from nodeproof.session.run import Session, break_off, provider_of, session_of
from nodeproof.session.standing import DoesNotStand
from nodeproof.session.times import WAITED


def open_stage(item: pytest.Item) -> Stage:
    """Return the fixture `lab`: the worker's lab, cleaned and checked for the scenario.

    Without a lab the whole session ends.

    Raises:
        Unproven: Too few nodes may be affected, or a standing fault could not be injected.
    """
    session = session_of(item.config)
    needs = asked.needs(item)
    try:
        size = asked.size(needs, session.options) if asked.is_large(needs, session.options) else session.size
        provider, standing_faults = provider_of(session), asked.standing(item)
        if session.shares_later(item.nodeid):
            provider.reserve()
        enter = partial(_enter, item, session)
        lab = provider.clean(needs, size, session.is_alone(item.nodeid), standing_faults, enter)
        missing = asked.lacks_features(item, lab.features)
        folder = scenario_dir(session.run, item.nodeid)
        progress = (session.telling.step, session.telling.until) if session.telling else (allure.step,)
        stage = Stage(lab, folder, needs, *progress)
    except (TooFewNodes, DoesNotStand) as problem:
        store_unrecorded(item, session, problem)
        raise Unproven(str(problem)) from problem
    except (Problem, OutsideError) as problem:
        break_off(session, str(problem))
    if missing:
        skip_with_verdict(item, session, "lab-lacks", f"this lab has no {missing}")
    item.stash[STAGE] = stage
    return stage


def _enter(item: pytest.Item, session: Session) -> None:
    """Wait until the machine has capacity for the scenario; its duration excludes this wait."""
    began_t = time.monotonic()

    def slack_share() -> float | None:
        stage = item.stash.get(STAGE, None)
        return stage.slack_share() if stage is not None else None

    session.admission.enter(session.say, slack_share)
    item.user_properties.append((WAITED, round(time.monotonic() - began_t, 3)))
