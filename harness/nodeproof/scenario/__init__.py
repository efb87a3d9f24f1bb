"""The vocabulary of scenarios: by subject, or each word by its name.

from nodeproof.scenario import Expectations, Lab, faults, needs, windows
from nodeproof.scenario import partition
"""

# What this module imports is public.
# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from nodeproof import actions
from nodeproof.actions import *
from nodeproof.actions import OwnCredential, User, kubelet_of, labels_of
from nodeproof.faults import Fault
from nodeproof.model import window as windows
from nodeproof.scenario import checks, faults, moments, probes, storm
from nodeproof.scenario.checks import *
from nodeproof.scenario.faults import *
from nodeproof.scenario.kubernetes import *
from nodeproof.scenario.lab import Expectations, Lab
from nodeproof.scenario.marks import claims, needs, standing
from nodeproof.scenario.moments import *
from nodeproof.scenario.probes import *
from nodeproof.scenario.sources import *
from nodeproof.scenario.types import *

if not TYPE_CHECKING:

    def __getattr__(word: str) -> type[Fault]:
        return getattr(faults, word)
