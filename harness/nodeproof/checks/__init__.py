"""Pure judgments over a History."""
