"""Actions of a scenario. The beginning and end of each are recorded."""
