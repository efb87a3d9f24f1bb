"""What a scenario does to the cluster: `lab.run(actions.kubectl("cordon", node))`."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.actions import *
from nodeproof.actions import OwnCredential, User, kubelet_of, labels_of
