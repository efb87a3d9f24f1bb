"""One file per fault: one harm and its exact inverse."""
