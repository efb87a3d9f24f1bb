"""Machines: SSH with timeouts, and power."""
