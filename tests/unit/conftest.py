"""What all unit tests run with."""

from __future__ import annotations

from hypothesis import settings

# How long an example takes says how busy the machine is.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
