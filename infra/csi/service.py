"""Hooks classes up as services of gRPC: by the names of their methods, without generated servicers."""

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
    """A service of gRPC whose methods are those of `served`; what it lacks is answered UNIMPLEMENTED.

    Each call is written to `calls`, as one of `node` where the request names no node.
    """
    methods = {
        method.name: grpc.unary_unary_rpc_method_handler(
            _answer(method.name, getattr(served, method.name), calls, node),
            request_deserializer=GetMessageClass(method.input_type).FromString,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
        for method in _methods(service)
        if hasattr(served, method.name)
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _methods(service: ServiceDescriptor) -> list[MethodDescriptor]:
    return list(service.methods)


def _answer(name: str, method: Method, calls: Calls, node: str) -> Callable[[Any, Any], Message]:
    def answer(request: Any, context: Any) -> Message:
        begin = time.monotonic()
        code, why, response = _tried(method, request)
        volume = getattr(request, "volume_id", "")
        if not volume and response is not None and hasattr(response, "volume"):
            volume = response.volume.volume_id
        asked = getattr(request, "node_id", "") or node
        try:
            calls.write(name, volume, asked, begin, time.monotonic(), code.name)
        except OSError as error:
            code, why, response = grpc.StatusCode.INTERNAL, f"{name} is not written down: {error}", None
        if response is None:
            context.abort(code, _naming(why, volume, asked))
            raise AssertionError("abort does not return")
        return response

    return answer


def _tried(method: Method, request: Any) -> tuple[grpc.StatusCode, str, Message | None]:
    try:
        return grpc.StatusCode.OK, "", method(request)
    except Refused as refused:
        return refused.code, refused.why, None
    except Exception as error:
        return grpc.StatusCode.INTERNAL, repr(error), None


def _naming(why: str, volume: str, node: str) -> str:
    """Why a call was not done, with the volume and the node that it was about, where it lacks them."""
    about = {"volume": volume, "node": node}
    lacks = [f"{what} {name}" for what, name in about.items() if name and name not in why]
    return f"{', '.join(lacks)}: {why}" if lacks else why


def needed(value: Any, field: str) -> Any:
    """A field that a request must have. Raises Refused."""
    if not value:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"{field} is missing")
    return value
