"""Frozen data and pure functions: claim, cluster, history, window, verdict. No I/O."""
