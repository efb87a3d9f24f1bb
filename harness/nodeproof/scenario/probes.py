"""What a scenario reads once: `lab.observe(probes.metric("kube-scheduler", name))`."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.probes.api import *
from nodeproof.probes.component import *
from nodeproof.probes.machine import *
from nodeproof.probes.machine import INHIBITORS, SWAP_LIMIT
from nodeproof.probes.volume import *
from nodeproof.scenario.lab import STATUS
