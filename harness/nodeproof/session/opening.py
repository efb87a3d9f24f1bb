"""What a scenario gets: a clean lab that has what it needs, or a verdict that says what is missing."""

from __future__ import annotations

import allure
import pytest

from nodeproof.labs.client.lab import TooFewNodes
from nodeproof.model.problem import OutsideError, Problem
from nodeproof.report.rundir import scenario_dir
from nodeproof.scenario.stage import Stage
from nodeproof.session import asked
from nodeproof.session.closing import STAGE, skip_with_verdict, store_unrecorded
from nodeproof.session.judging import Unproven
from nodeproof.session.run import break_off, provider_of, session_of
from nodeproof.session.standing import DoesNotStand


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
        living = provider.clean(needs, size, session.is_alone(item.nodeid), stands)
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
