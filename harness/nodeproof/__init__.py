"""Nodeproof: claims of the Kubernetes Nodes page, provoked with real faults and judged from a recording."""
