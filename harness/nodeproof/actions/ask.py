"""A request to the API, as the lab's administrator or as somebody else, and its answer."""

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
"""This may be our own: where a connection broke, a request was sent twice."""


@dataclass(frozen=True)
class User:
    """Whom the administrator impersonates."""

    name: str
    groups: Sequence[str] = ()


By = User | OwnCredential | None
"""Whom a request comes from; nobody told is the lab's administrator."""


def kubelet_of(node: str) -> User:
    """A node's kubelet, as the Node authorizer and NodeRestriction know it."""
    return User(f"system:node:{node}", (NODES_GROUP,))


def ask(
    method: Method, path: str, body: Json = None, *, by: By = None, may_fail: bool = False
) -> Action[Observation]:
    """Send a request; its answer is observed, a refusal too: `status` (HTTP) and `body`. So is the failure of
    a GET that `may_fail`: 500 and above, or status 0 where no answer came.

    What a POST makes is removed when the scenario is over, or by the next run or `nodeproof heal` where that
    was not to be: the ledger has it before it is asked for. What is asked for is in the report: ask for
    nothing that is secret. The action raises Problem on a POST without a name, and on a path with a query.
    Raises Problem where what changes something may fail: nobody would know whether it was done.
    """
    if may_fail and method != "GET":
        raise Problem(f"{method} {path} may not fail", "scenario", "only a GET changes nothing")

    def do(doing: Doing) -> Observation:
        if method != "POST":
            return _send(doing, method, path, body, by, may_fail=may_fail)
        made, safety = _made(path, body), doing.lab.safety
        mark = safety.expect(made)
        annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
        marked = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        try:
            seen = _send(doing, method, path, marked, by)
        except (ApiError, KeyboardInterrupt) as error:
            # A server with too much to do has not begun with it.
            is_refused = isinstance(error, ApiError) and error.status == _TOO_MANY
            (safety.never_made if is_refused else safety.unanswered)(mark, made)
            raise
        if seen.value["status"] >= _REFUSED and seen.value["status"] != _IS_THERE:
            safety.never_made(mark, made)
        return seen

    return Action(_text(method, path, by), do)


def would(method: Method, path: str, body: Json = None, *, by: By = None) -> Action[Observation]:
    """Send a request as `ask` does, as a dry run: it is authorized, admitted and validated, and not kept."""
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
    asked_t = time.monotonic()
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
        f"{method} {path}{query}", by.name if by else ADMIN, _without_secrets(answer), asked_t
    )


def _text(method: Method, path: str, by: By) -> str:
    return f"{method} {path}" + (f" as {by.name}" if by else "")


def _made(path: str, body: Json) -> str:
    """Where what a POST makes will be. Raises Problem where nobody knows."""
    _refuse_query(path)
    name = str((body or {}).get("metadata", {}).get("name") or "")
    if name in ("", ".", ".."):
        raise Problem(f"POST {path}: an object without a name", "scenario", "name it: it has to be removed")
    return f"{path}/{quote(name, safe='')}"


def _refuse_query(path: str) -> None:
    if "?" in path or "#" in path:
        raise Problem(f"{path}: a query in a path", "scenario", "ask without one")
    if "//" in path or path.endswith("/"):
        raise Problem(f"{path}: an empty part in a path", "scenario", "ask without it")


def _without_secrets(answer: Mapping[str, Json]) -> Mapping[str, Json]:
    """An answer as it may be in a report: no Secret's data, no token."""
    body = answer["body"]
    if not isinstance(body, Mapping):
        return answer
    if body.get("kind") in ("Secret", "SecretList"):
        return {**answer, "body": {"kind": body["kind"]}}
    if "token" in (body.get("status") or {} if isinstance(body.get("status"), Mapping) else {}):
        return {**answer, "body": {**body, "status": {}}}
    return answer
