"""Actions of a scenario, one per file. The beginning and end of each are recorded."""
