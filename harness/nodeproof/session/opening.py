"""What a scenario gets: a clean lab that has what it needs, or a verdict that says what is missing."""

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
    """The worker's lab, clean and fit for the scenario, as the scenario sees it.

    Raises Unproven where too few nodes may be harmed, or something does not stand; a lab that can't be had
    ends the whole session.
    """
    session = session_of(item.config)
    needs = asked.needs(item)
    try:
        size = asked.size(needs, session.options) if asked.is_large(needs, session.options) else session.size
        provider, stands = provider_of(session), asked.standing(item)
        if session.shares_later(item.nodeid):
            provider.reserve()
        enter = partial(_enter, item, session)
        living = provider.clean(needs, size, session.is_alone(item.nodeid), stands, enter)
        missing = asked.lacks_features(item, living.features)
        folder = scenario_dir(session.run, item.nodeid)
        told = (session.telling.step, session.telling.until) if session.telling else (allure.step,)
        stage = Stage(living, folder, needs, *told)
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
    """Wait until the machine has room for the scenario; that is no part of its duration."""
    began_t = time.monotonic()

    def slack_share() -> float | None:
        stage = item.stash.get(STAGE, None)
        return stage.slack_share() if stage is not None else None

    session.admission.enter(session.say, slack_share)
    item.user_properties.append((WAITED, round(time.monotonic() - began_t, 3)))
