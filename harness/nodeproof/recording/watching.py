"""Watch of one resource: LIST, then watch from there, with an entry for each gap."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3

from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.resources import recorded

Json = Any
Receive = Callable[[str, float, Mapping[str, Json]], None]
RETRY_PERIOD_S = 0.2


class Expired(Exception):
    """The watch cannot resume from its resourceVersion (410 Gone); a new LIST is needed."""


def follow(
    api: Api,
    resource: str,
    path: str,
    receive: Receive,
    live: Callable[[], object],
    stopping: threading.Event,
    silence_limit_s: float,
) -> None:
    """Pass every event of a resource to `receive` until `stopping` is set.

    A broken or silent watch resumes from its last resourceVersion, an expired one with a new LIST. The time
    in between is written as a gap, because its events are received late or not at all.

    Args:
        api: The API server.
        resource: Name of the resource in entries.
        path: Path of the resource.
        receive: Called with the kind, time (s, monotonic) and data of each entry.
        live: Called once after the first LIST.
        stopping: Ends the watch.
        silence_limit_s: Silence (s) after which the watch counts as broken.
    """
    rv, blind_since, reason = "", 0.0, ""
    last_t = time.monotonic()
    while not stopping.is_set():
        try:
            if not rv:
                rv = _list(api, resource, path, receive)
                live()
                live = _nothing
            with api.watch(path, rv, silence_limit_s) as lines:
                if reason:
                    receive(
                        "gap",
                        time.monotonic(),
                        {"resource": resource, "since": blind_since, "reason": reason},
                    )
                    reason = ""
                for line in lines:
                    last_t = time.monotonic()
                    rv = _take(line, resource, receive, last_t)
                    if stopping.is_set():
                        return
                raise OSError("the server ended the watch")
        except (OSError, ApiError, Expired, urllib3.exceptions.HTTPError) as error:
            if not reason:
                blind_since, reason = last_t, f"{type(error).__name__}: {error}"[:200]
            if isinstance(error, Expired) or (isinstance(error, ApiError) and error.status == 410):
                rv = ""
            stopping.wait(RETRY_PERIOD_S)


def _nothing() -> None:
    return


def _list(api: Api, resource: str, path: str, receive: Receive) -> str:
    listing = api.get(path)
    rv = str(listing["metadata"]["resourceVersion"])
    items = [recorded(resource, item) for item in listing["items"]]
    receive("listed", time.monotonic(), {"resource": resource, "rv": rv, "items": items})
    return rv


def _take(line: bytes, resource: str, receive: Receive, t: float) -> str:
    event = json.loads(line)
    if event["type"] == "ERROR":
        raise Expired(event["object"].get("message", "error event"))
    obj = recorded(resource, event["object"])
    receive("watch", t, {"resource": resource, "type": event["type"], "object": obj})
    return str(event["object"]["metadata"]["resourceVersion"])
