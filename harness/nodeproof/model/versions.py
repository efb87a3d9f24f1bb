"""The versions of Kubernetes that are built and supported."""

DEFAULT_KUBERNETES_VERSION = "v1.37.2"
"""The version of a lab without `--kubernetes-version`; `infra/kubernetes/go.mod` requires the same."""
SUPPORTED_MINORS = range(34, 38)
"""The minors of Kubernetes 1 that our own programs must compile with."""
