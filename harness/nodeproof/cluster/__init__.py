"""The Kubernetes API: client, watch, running configuration, workloads."""
