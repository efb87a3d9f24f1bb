"""A CSI driver that attaches volumes to the machines of a lab, each volume to one machine at a time."""

import sys
from importlib.util import find_spec

if find_spec("grpc") is None:
    print("csi driver: not installed: grpcio; run `pip install 'nodeproof[csi]'`", file=sys.stderr)
    sys.exit(2)

NAME = "csi.nodeproof.dev"
"""Name of the driver in Kubernetes."""

VERSION = "0.1.0"

MAX_VOLUMES = 8
"""Maximum number of volumes on a node."""
