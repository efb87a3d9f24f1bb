"""What a scenario does to the cluster: `lab.run(actions.kubectl("cordon", node))`."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.actions.api import *
from nodeproof.actions.api import OwnCredential, User, kubelet_of
from nodeproof.actions.nodes import *
from nodeproof.actions.nodes import labels_of
from nodeproof.actions.workloads import *
from nodeproof.actions.writes import *
