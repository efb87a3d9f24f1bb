"""The types that helpers of scenarios take and return."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.faults import Fault
from nodeproof.labs.base.spec import Shape
from nodeproof.labs.base.wire import NodeInfo
from nodeproof.model.judgment import Check, Moment, Observation
from nodeproof.probes import Probe
from nodeproof.safety.injector import Injection
from nodeproof.scenario.lab import Expectation
