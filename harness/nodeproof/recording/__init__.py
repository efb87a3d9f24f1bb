"""Watches and machine events become a History, on disk as it happens."""
