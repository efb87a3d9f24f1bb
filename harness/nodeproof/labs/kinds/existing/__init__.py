"""Somebody's own cluster as a lab: attached by its inventory, never started."""
