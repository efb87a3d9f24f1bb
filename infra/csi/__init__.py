"""A CSI driver that attaches volumes to the machines of a lab, each volume to one machine at a time."""

NAME = "csi.nodeproof.dev"
"""Name of the driver in Kubernetes."""

VERSION = "0.1.0"

MAX_VOLUMES = 8
"""Maximum number of volumes on a node."""
