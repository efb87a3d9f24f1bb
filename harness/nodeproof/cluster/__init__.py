"""The Kubernetes API: client, watch, live configuration, workloads."""
