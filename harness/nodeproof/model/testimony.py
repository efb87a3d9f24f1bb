"""The words of pods that write down what happens to them (`nodeproof.cluster.witness`)."""

from __future__ import annotations

STARTED = "started"
BEAT = "beat"
HOOK_BEGAN = "pre-stop began"
HOOK_ENDED = "pre-stop ended"
SIGTERM = "SIGTERM"
EXITS = "exits"
WROTE = "wrote"
FAILED = "failed to write"
"""Of a number that a witness was to write to its volume."""
BEAT_S = 0.2
"""How often a witness tells that it lives: as exactly is the time of its SIGKILL known."""
