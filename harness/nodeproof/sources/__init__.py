"""What tells of itself what happened, and is heard afterwards: a file each."""
