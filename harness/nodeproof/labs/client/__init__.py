"""A lab as the harness and its users see it."""
