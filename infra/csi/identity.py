"""The driver's identity, the same at each of its endpoints."""

from __future__ import annotations

from google.protobuf.wrappers_pb2 import BoolValue

from infra.csi import NAME, VERSION
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.protocol import registration_pb2 as registration

_CONTROLLER = csi.PluginCapability.Service.CONTROLLER_SERVICE


class Identity:
    """The service `Identity`."""

    def GetPluginInfo(self, _request: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:
        """Return name and version."""
        return csi.GetPluginInfoResponse(name=NAME, vendor_version=VERSION)

    def GetPluginCapabilities(
        self, _request: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        """Report that there is a controller service."""
        service = csi.PluginCapability.Service(type=_CONTROLLER)
        return csi.GetPluginCapabilitiesResponse(capabilities=[csi.PluginCapability(service=service)])

    def Probe(self, _request: csi.ProbeRequest) -> csi.ProbeResponse:
        """Report that the driver is ready."""
        return csi.ProbeResponse(ready=BoolValue(value=True))


class Registration:
    """The kubelet's service `Registration`, for sockets in its plugin folder."""

    def GetInfo(self, _request: registration.InfoRequest) -> registration.PluginInfo:
        """Return no endpoint, so that the kubelet uses the same socket."""
        return registration.PluginInfo(type="CSIPlugin", name=NAME, supported_versions=["1.0.0"])

    def NotifyRegistrationStatus(
        self, _request: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Ignore the status."""
        return registration.RegistrationStatusResponse()
