"""Settings of all unit tests."""

from __future__ import annotations

from hypothesis import settings

# The duration of an example depends on the load of the machine.
settings.register_profile("steady", deadline=None)
settings.load_profile("steady")
