"""Audit of somebody's own cluster, which only reads."""
