"""Requests to the API: as the administrator, another user or a node, and by the cluster's own kubectl."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import quote

from nodeproof.actions.action import Action, ActionContext
from nodeproof.cluster.api import Api, ApiError
from nodeproof.labs.client.handle import LabHandle
from nodeproof.labs.client.safety import MARK
from nodeproof.machines.machine import MachineError
from nodeproof.model.judgment import Observation, words_in
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

_TIMEOUT_S = 10.0
_KUBECONFIG = "/etc/kubernetes/kubeconfig"


@dataclass(frozen=True)
class OwnCredential:
    """A node's kubelet as the sender of a request, by its own certificate, not by impersonation."""

    node: str

    @property
    def name(self) -> str:
        """The sender's name in a recording."""
        return f"the kubelet of {self.node}"


@contextmanager
def api_of(lab: LabHandle, node: str) -> Iterator[Api]:
    """Open the lab's API as a node's kubelet, and delete the credential read from the node afterwards.

    Raises:
        MachineError: A file could not be read from the node.
        Problem: The kubeconfig is not safe to use.
    """
    kubeconfig = json.loads(_read(lab, node, _KUBECONFIG))
    (user,), (cluster,) = kubeconfig["users"], kubeconfig["clusters"]
    entries = (
        (user["user"], "client-certificate"),
        (user["user"], "client-key"),
        (cluster["cluster"], "certificate-authority"),
    )
    with tempfile.TemporaryDirectory(prefix="nodeproof-") as folder:
        for owner, name in entries:
            text = _read(lab, node, owner[name])
            owner[name] = str(_put(Path(folder) / name, text))
        yield Api(_put(Path(folder) / "kubeconfig", json.dumps(kubeconfig)), lab.cluster.api.dial)


def _put(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text)
    return path


def _read(lab: LabHandle, node: str, path: str) -> str:
    """Return the content of a node's file. Raises MachineError if it does not exist."""
    completed = lab.fleet.machine(node).run(["cat", path], timeout_s=_TIMEOUT_S)
    if completed.status != 0:
        raise MachineError(f"{node} has no {path}")
    return completed.stdout


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


def send_request(
    method: Method, path: str, body: Json = None, *, by: By = None, may_fail: bool = False
) -> Action[Observation]:
    """Send a request and observe its answer, even a refusal: `status` (HTTP) and `body`.

    With `may_fail` the failure of a GET is observed, too: 500 and above, or status 0 if no answer came.

    The ledger lists what a POST creates before the request is sent. The object is removed when the scenario
    ends, otherwise by the next run or `nodeproof heal`. The request is in the report, so it must not contain
    secrets.

    Raises:
        Problem: `may_fail` is set for a request that changes something, as its
            effect would be unknown. The action raises it for a POST without a name, and for a path with a
            query.
    """
    if may_fail and method != "GET":
        message = "may_fail is for GET only: another request may have taken effect"
        raise Problem(message, f"{method} {path}", "remove may_fail, or send a GET")

    def do(context: ActionContext) -> Observation:
        if method != "POST":
            return _send(context, method, path, body, by, may_fail=may_fail)
        object_path, safety = _created_path(path, body), context.lab.safety
        mark = safety.register_object(object_path)
        annotations = {**(body["metadata"].get("annotations") or {}), MARK: mark}
        marked_body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
        try:
            observation = _send(context, method, path, marked_body, by)
        except (ApiError, KeyboardInterrupt) as error:
            # An overloaded server has not started to handle the request.
            is_refused = isinstance(error, ApiError) and error.status == _TOO_MANY
            (safety.forget_object if is_refused else safety.may_appear)(mark, object_path)
            raise
        if observation.value["status"] >= _REFUSED and observation.value["status"] != _IS_THERE:
            safety.forget_object(mark, object_path)
        return observation

    return Action(_text(method, path, by), do)


def dry_run(method: Method, path: str, body: Json = None, *, by: By = None) -> Action[Observation]:
    """Send a request as a dry run: it is authorized, admitted and validated, not stored."""
    return Action(
        f"{_text(method, path, by)}, dry",
        lambda context: _send(context, method, path, body, by, dry_run=True),
    )


def _send(
    context: ActionContext,
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
        with api_of(context.lab, by.node) as own:
            answer = own.ask(method, f"{path}{query}", body, {}, ())
    else:
        headers = {} if by is None else {"Impersonate-User": by.name}
        api, groups = context.lab.cluster.api, by.groups if by else ()
        try:
            answer = api.ask(method, f"{path}{query}", body, headers, groups)
        except ApiError as error:
            if not may_fail:
                raise
            answer = {"status": error.status, "body": str(error)}
    return context.observed(
        f"{method} {path}{query}", by.name if by else ADMIN, _without_secrets(answer), requested_t
    )


def _text(method: Method, path: str, by: By) -> str:
    return f"{method} {path}" + (f" as {by.name}" if by else "")


def _created_path(path: str, body: Json) -> str:
    """Return the path of the object that a POST creates. Raises Problem if the object has no name."""
    _refuse_query(path)
    name = str((body or {}).get("metadata", {}).get("name") or "")
    if name in ("", ".", ".."):
        raise Problem("the object has no name", f"POST {path}", "name it, so that it can be removed")
    return f"{path}/{quote(name, safe='')}"


def _refuse_query(path: str) -> None:
    if "?" in path or "#" in path:
        raise Problem("the path has a query or a fragment", path, "remove it")
    if "//" in path or path.endswith("/"):
        raise Problem("the path ends with a slash or contains //", path, "remove the extra slash")


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


_KUBECTL_TIMEOUT_S = 60.0
_CORDONS = ("cordon", "drain")
_SECRETS = frozenset({"secret", "secrets", "token"})
_INSIDE = frozenset({"exec", "attach", "cp", "debug"})
"""Commands that show the inside of a container: its environment and its mounted Secrets among it."""
_OPTIONS = ("--from-", "--token", "--raw", "-f", "--filename", "-k", "--kustomize")


def kubectl(*arguments: str, may_fail: bool = False) -> Action[Observation]:
    """Run kubectl and observe `status` (its exit code), `stdout` and `stderr`.

    Nodes that it cordons are uncordoned when the scenario ends, unless they were cordoned before.

    Raises:
        Problem: The command could show a secret, as its output is in the report: Secrets and tokens by name,
            objects that only a file names, the inside of a container, a dump of everything; or it cordons
            nodes that it does not name. The action raises it if kubectl fails, unless it `may_fail`.
    """
    is_dump = {"cluster-info", "dump"} <= {*arguments}
    secret = "cluster-info dump" if is_dump else next(filter(_may_show_secret, arguments), "")
    if secret:
        raise Problem(
            f"kubectl {secret} may show a secret",
            "kubectl(...)",
            "use another command: its output is in the report",
        )
    verb, names = next(iter(arguments), ""), _possible_names(arguments[1:])
    if verb in _CORDONS and any(map(_selects, arguments)):
        raise Problem(
            f"kubectl {verb} by a selector", "kubectl(...)", "name the nodes, so that they can be uncordoned"
        )
    command = f"kubectl {' '.join(arguments)}"

    def do(context: ActionContext) -> Observation:
        for node in names if verb in _CORDONS else ():
            context.lab.safety.register_cordon(node)
        requested_t = time.monotonic()
        completed = context.lab.cluster.run_kubectl(arguments, _KUBECTL_TIMEOUT_S, "")
        value = {name: completed[name] for name in ("status", "stdout", "stderr")}
        observation = context.observed(command, ADMIN, value, requested_t)
        if completed["status"] != 0 and not may_fail:
            message = str(completed["stderr"]).strip().replace("\n", " ")
            raise Problem(f"{command}: {message}", f"lab {context.lab.name}", "try `nodeproof kubectl`")
        for node in names if verb == "uncordon" and completed["status"] == 0 else ():
            context.lab.safety.forget_cordon(node)
        return observation

    return Action(command, do)


def _possible_names(arguments: Sequence[str]) -> Sequence[str]:
    """Return the arguments that may be a node's name, such as `node-1` or `node/node-1`."""
    return [argument.rpartition("/")[2] for argument in arguments if not argument.startswith("-")]


def _selects(argument: str) -> bool:
    return argument.startswith(("-l", "--selector"))


def _may_show_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & _SECRETS) or argument in _INSIDE or argument.startswith(_OPTIONS)


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action)  # noqa: PLE0605
