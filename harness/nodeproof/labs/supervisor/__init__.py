"""The processes inside a lab; they run as root."""
