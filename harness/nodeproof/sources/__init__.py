"""Sources outside the API whose messages are collected after the events."""
