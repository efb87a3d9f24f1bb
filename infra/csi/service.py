"""Serve objects as gRPC services, by the names of their methods, without generated servicers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from infra.csi.calls import Calls
from infra.csi.hypervisor import Refused

Method = Callable[[Any], Message]


def handler(service: ServiceDescriptor, served: object, calls: Calls, node: str = "") -> Any:
    """Return a handler for a gRPC service with the methods of `served`; missing ones are UNIMPLEMENTED.

    Each call is written to `calls`, with `node` if the request does not name a node.
    """
    methods = {
        method.name: grpc.unary_unary_rpc_method_handler(
            _wrap(method.name, getattr(served, method.name), calls, node),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in _methods(service)
        if hasattr(served, method.name)
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _methods(service: ServiceDescriptor) -> list[MethodDescriptor]:
    return list(service.methods)


def _wrap(name: str, method: Method, calls: Calls, node: str) -> Callable[[Any, Any], Message]:
    def handle(request: Any, context: Any) -> Message:
        begin = time.monotonic()
        code, why, response = _call(method, request)
        volume = getattr(request, "volume_id", "")
        if not volume and response is not None and hasattr(response, "volume"):
            volume = response.volume.volume_id
        node_id = getattr(request, "node_id", "") or node
        try:
            calls.write(name, volume, node_id, begin, time.monotonic(), code.name)
        except OSError as error:
            code, why, response = grpc.StatusCode.INTERNAL, f"{name} is not written down: {error}", None
        if response is None:
            context.abort(code, _with_names(why, volume, node_id))
            raise AssertionError("abort does not return")
        return response

    return handle


def _call(method: Method, request: Any) -> tuple[grpc.StatusCode, str, Message | None]:
    try:
        return grpc.StatusCode.OK, "", method(request)
    except Refused as refused:
        return refused.code, refused.why, None
    except Exception as error:
        return grpc.StatusCode.INTERNAL, repr(error), None


def _with_names(why: str, volume: str, node: str) -> str:
    """Prefix the reason of a refused call with the call's volume and node, if they are missing."""
    names = {"volume": volume, "node": node}
    missing = [f"{kind} {name}" for kind, name in names.items() if name and name not in why]
    return f"{', '.join(missing)}: {why}" if missing else why


def required(value: Any, field: str) -> Any:
    """Return the value of a required field of a request. Raises Refused if it is empty."""
    if not value:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{field} is missing")
    return value
