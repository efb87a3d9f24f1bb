"""A CSI driver: volumes that are attached to a lab's machines, one at a time, and come off again."""

NAME = "csi.nodeproof.dev"
"""What Kubernetes knows the driver by."""

VERSION = "0.1.0"

MAX_VOLUMES = 8
"""So many volumes a node may have."""
