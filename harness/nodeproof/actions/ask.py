"""Requests to the API, as the lab's administrator or another user, and their answers."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from nodeproof.actions.action import Action, Doing
from nodeproof.actions.credential import OwnCredential, api_of
from nodeproof.cluster.api import ApiError
from nodeproof.labs.client.safety import MARK
from nodeproof.model.observation import Observation
from nodeproof.model.problem import Problem

Json = Any
Method = Literal["GET", "POST", "PATCH", "DELETE"]
NODES_GROUP = "system:nodes"
ADMIN = "admin"
_REFUSED = 400
_TOO_MANY = 429
_IS_THERE = 409
"""The object may be ours: after a broken connection a request is sent twice."""


@dataclass(frozen=True)
class User:
    """User that the administrator impersonates."""

    name: str
    groups: Sequence[str] = ()


By = User | OwnCredential | None
"""The sender of a request; None is the lab's administrator."""


def kubelet_of(node: str) -> User:
    """Return a node's kubelet as a user of the Node authorizer and NodeRestriction."""
    return User(f"system:node:{node}", (NODES_GROUP,))


def ask(
    method: Method, path: str, body: Json = None, *, by: By = None, may_fail: bool = False
) -> Action[Observation]:
    """Send a request and observe its answer, even a refusal: `status` (HTTP) and `body`.

    With `may_fail` the failure of a GET is observed, too: 500 and above, or status 0 if no answer came.

    The ledger lists what a POST creates before the request is sent. The object is removed when the scenario
    ends, otherwise by the next run or `nodeproof heal`. The request is in the report, so it must not contain
    secrets.

    Raises:
        Problem: `may_fail` is set for a request that changes something, as nobody would know whether it took
            effect. The action raises it for a POST without a name and for a path with a query.
    """
    if may_fail and method != "GET":
        raise Problem(f"{method} {path} cannot have may_fail", "scenario", "only a GET changes nothing")

    def do(doing: Doing) -> Observation:
        if method != "POST":
            return _send(doing, method, path, body, by, may_fail=may_fail)
        object_path, safety = _created_path(path, body), doing.lab.safety
        mark = safety.expect(object_path)
        annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
        marked_body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        try:
            observation = _send(doing, method, path, marked_body, by)
        except (ApiError, KeyboardInterrupt) as error:
            # An overloaded server has not started to handle the request.
            is_refused = isinstance(error, ApiError) and error.status == _TOO_MANY
            (safety.never_made if is_refused else safety.unanswered)(mark, object_path)
            raise
        if observation.value["status"] >= _REFUSED and observation.value["status"] != _IS_THERE:
            safety.never_made(mark, object_path)
        return observation

    return Action(_text(method, path, by), do)


def would(method: Method, path: str, body: Json = None, *, by: By = None) -> Action[Observation]:
    """Send a request as `ask` does, as a dry run: it is authorized, admitted and validated, not stored."""
    return Action(
        f"{_text(method, path, by)}, dry", lambda doing: _send(doing, method, path, body, by, dry_run=True)
    )


def _send(
    doing: Doing,
    method: Method,
    path: str,
    body: Json,
    by: By,
    *,
    dry_run: bool = False,
    may_fail: bool = False,
) -> Observation:
    _refuse_query(path)
    requested_t = time.monotonic()
    query = "?dryRun=All" if dry_run and method != "GET" else ""
    if isinstance(by, OwnCredential):
        with api_of(doing.lab, by.node) as own:
            answer = own.ask(method, f"{path}{query}", body, {}, ())
    else:
        headers = {} if by is None else {"Impersonate-User": by.name}
        api, groups = doing.lab.cluster.api, by.groups if by else ()
        try:
            answer = api.ask(method, f"{path}{query}", body, headers, groups)
        except ApiError as error:
            if not may_fail:
                raise
            answer = {"status": error.status, "body": str(error)}
    return doing.observed(
        f"{method} {path}{query}", by.name if by else ADMIN, _without_secrets(answer), requested_t
    )


def _text(method: Method, path: str, by: By) -> str:
    return f"{method} {path}" + (f" as {by.name}" if by else "")


def _created_path(path: str, body: Json) -> str:
    """Return the path of the object that a POST creates. Raises Problem if the object has no name."""
    _refuse_query(path)
    name = str((body or {}).get("metadata", {}).get("name") or "")
    if name in ("", ".", ".."):
        raise Problem(
            f"POST {path}: an object without a name", "scenario", "name it, so that it can be removed"
        )
    return f"{path}/{quote(name, safe='')}"


def _refuse_query(path: str) -> None:
    if "?" in path or "#" in path:
        raise Problem(f"{path}: a path with a query", "scenario", "remove the query")
    if "//" in path or path.endswith("/"):
        raise Problem(f"{path}: a path with an empty segment", "scenario", "remove the segment")


def _without_secrets(answer: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return an answer without the data of Secrets and without tokens, so that a report may contain it."""
    body = answer["body"]
    if not isinstance(body, Mapping):
        return answer
    if body.get("kind") in ("Secret", "SecretList"):
        return {**answer, "body": {"kind": body["kind"]}}
    if "token" in (body.get("status") or {} if isinstance(body.get("status"), Mapping) else {}):
        return {**answer, "body": {**body, "status": {}}}
    return answer
