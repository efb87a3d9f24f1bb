"""Nodes that are virtual machines."""
