"""One computer each: SSH with deadlines, power."""
