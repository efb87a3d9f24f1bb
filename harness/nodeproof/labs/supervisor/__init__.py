"""The inside of a lab: root's processes."""
