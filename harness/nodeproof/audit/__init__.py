"""Audit of an existing cluster, which only reads."""
