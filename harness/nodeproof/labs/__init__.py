"""Clusters that may be harmed, and the supervisor that owns one."""
