"""Who the driver is: the same on each of its endpoints."""

from __future__ import annotations

from google.protobuf.wrappers_pb2 import BoolValue

from infra.csi import NAME, VERSION
from infra.csi.protocol import csi_pb2 as csi
from infra.csi.protocol import registration_pb2 as registration

_CONTROLLER = csi.PluginCapability.Service.CONTROLLER_SERVICE


class Identity:
    """The service `Identity`."""

    def GetPluginInfo(self, _request: csi.GetPluginInfoRequest) -> csi.GetPluginInfoResponse:
        """Name and version."""
        return csi.GetPluginInfoResponse(name=NAME, vendor_version=VERSION)

    def GetPluginCapabilities(
        self, _request: csi.GetPluginCapabilitiesRequest
    ) -> csi.GetPluginCapabilitiesResponse:
        """It has a controller."""
        service = csi.PluginCapability.Service(type=_CONTROLLER)
        return csi.GetPluginCapabilitiesResponse(capabilities=[csi.PluginCapability(service=service)])

    def Probe(self, _request: csi.ProbeRequest) -> csi.ProbeResponse:
        """What answers is ready."""
        return csi.ProbeResponse(ready=BoolValue(value=True))


class Registration:
    """The kubelet's service `Registration`, for a socket that it finds in its folder of plugins."""

    def GetInfo(self, _request: registration.InfoRequest) -> registration.PluginInfo:
        """Without an endpoint: the kubelet goes on with the socket that it asked."""
        return registration.PluginInfo(type="CSIPlugin", name=NAME, supported_versions=["1.0.0"])

    def NotifyRegistrationStatus(
        self, _request: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Nothing follows from it."""
        return registration.RegistrationStatusResponse()
