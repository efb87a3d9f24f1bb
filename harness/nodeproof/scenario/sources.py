"""Logs whose lines a scenario collects into its recording: `lab.collect(Log("kubelet-node-1", "text"))`."""

# What this module imports is public.
# mypy: implicit-reexport

from nodeproof.sources import Audit, CloudCalls, Journal, Log, VolumeCalls, audit
