"""The artifacts of labs: executables and the guests' image, and their cache."""
