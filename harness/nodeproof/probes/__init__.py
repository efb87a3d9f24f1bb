"""Looks at what is no object of the API: a file each."""
