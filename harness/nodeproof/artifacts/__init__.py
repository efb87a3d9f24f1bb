"""What labs are made from: executables, the guests' image, and where they are kept."""
