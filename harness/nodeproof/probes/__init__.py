"""Probes: reads of state that is not an object of the API."""
