"""Messages and services of the protocol, made by `make stubs` from the published .proto files."""

SPECIFICATION = "v1.13.0"
"""The version of the module that csi.proto is from."""
