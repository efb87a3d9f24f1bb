"""The base of every lab under a supervisor."""
