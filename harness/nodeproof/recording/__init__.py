"""Live recording of watches and machine events into a History on disk."""
