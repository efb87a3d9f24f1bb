"""Somebody's own cluster: its inventory, and the marks of nodes that may be harmed."""
