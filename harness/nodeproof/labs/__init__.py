"""Clusters that faults may affect, and the supervisor that owns one."""
