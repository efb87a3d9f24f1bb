"""An existing cluster, reached with a kubeconfig as kubectl reaches it: of an option or of an inventory."""

from __future__ import annotations

import contextlib
import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes.client import ApiClient
from kubernetes.config import ConfigException, new_client_from_config
from kubernetes.config.kube_config import KubeConfigMerger

from nodeproof import terminal
from nodeproof.cluster.api import Api, ApiError, server_time_s
from nodeproof.cluster.resources import WATCHED
from nodeproof.existing import inventory
from nodeproof.existing.inventory import Inventory
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

REQUESTS_PER_S, USER_AGENT = 20.0, "nodeproof-audit"
Files = Mapping[str, Mapping[str, Json]]
"""The content of kubeconfigs by path."""
_MALFORMED = (ConfigException, yaml.YAMLError, OSError, ValueError, KeyError, TypeError, AttributeError)


@dataclass(frozen=True)
class Access:
    """A context of a kubeconfig, its server and its user, and a client with the user's credentials."""

    context: str
    server: str
    user: str
    client: ApiClient


def local_user() -> str:
    """Return who runs this process, and on which machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"


def load_kubeconfig(option: str, context: str) -> Access:
    """Load a context of the kubeconfig that `option`, KUBECONFIG or the default names.

    An exec plugin runs with this process's environment. Without `context` the current one of the first file
    that has one counts, as with kubectl.

    Raises:
        Problem: No file or context exists, a file is malformed, or it gives no credentials.
    """
    paths = option or os.environ.get("KUBECONFIG", "") or "~/.kube/config"
    try:
        with _errors_logged() as errors:
            files: Files = KubeConfigMerger(paths).config_files
            name = context or _current_context(files)
            contexts, users = _entries(files, "context"), _entries(files, "user")
            if name not in contexts:
                choices = ", ".join(sorted(contexts)) or "none"
                raise Problem(f"no context {name!r}", paths, f"choose one with --context: {choices}")
            user = str(contexts[name][1].get("user", ""))
            path, credentials = users.get(user, (Path(), {}))
            if any(str(key).startswith("as") for key in credentials):
                # The Kubernetes client would act as the user itself.
                step = "use a context whose user has credentials of its own"
                raise Problem(f"user {user} impersonates another one (as)", str(path), step)
            client = new_client_from_config(config_file=paths, context=name)
    except _MALFORMED as error:
        message = " ".join(str(error).split())
        raise Problem(f"the kubeconfig cannot be used: {message}", paths, "try it with kubectl") from error
    if errors:
        raise Problem(f"no credentials: {errors[0]}", f"user {user}", "try it with kubectl")
    if "tokenFile" in credentials:
        _read_token_at_each_request(client, path.parent / credentials["tokenFile"])
    return Access(name, str(client.configuration.host), user, client)


def _current_context(files: Files) -> str:
    """Return the current context of the first file that has one; the Kubernetes client takes the last.

    Raises:
        ConfigException: There is none.
    """
    if not files:
        raise ConfigException("there is no such file")
    name = next(filter(None, (content.get("current-context") for content in files.values())), None)
    if name is None:
        raise ConfigException("it has no current-context; name one with --context")
    return str(name)


def _entries(files: Files, kind: str) -> Mapping[str, tuple[Path, Mapping[str, Json]]]:
    """Return the contexts or users by name, each of the first file that has it, and that file."""
    entries = [
        (str(entry["name"]), (Path(path), entry.get(kind) or {}))
        for path, content in files.items()
        for entry in content.get(f"{kind}s") or ()
    ]
    return dict(reversed(entries))


@contextlib.contextmanager
def _errors_logged() -> Iterator[list[str]]:
    """Collect what the Kubernetes client logs as errors: it does not raise if an exec plugin fails."""
    errors: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: errors.append(" ".join(record.getMessage().split()))  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield errors
    finally:
        root.removeHandler(handler)


def _read_token_at_each_request(client: ApiClient, path: Path) -> None:
    """Use the present token of a file; the client would read it once, with its line break."""

    def read(configuration: Any) -> None:
        try:
            configuration.api_key["BearerToken"] = f"Bearer {path.read_text().strip()}"
        except OSError as error:
            raise Problem(f"the token cannot be read: {error}", str(path), "try it with kubectl") from error

    client.configuration.refresh_api_key_hook = read


class Pace:
    """Limits requests to a rate, over all threads."""

    def __init__(self, per_s: float) -> None:
        self._period_s = 1.0 / per_s
        self._next_t = 0.0
        self._lock = threading.Lock()

    def wait(self) -> None:
        """Wait for the next turn."""
        with self._lock:
            now_t = time.monotonic()
            turn_t = max(now_t, self._next_t)
            self._next_t = turn_t + self._period_s
        threading.Event().wait(turn_t - now_t)


class PacedApi(Api):
    """API server of an existing cluster: at most `per_s` requests per second, and watches with bookmarks.

    Raises:
        Problem: The kubeconfig disables the verification of the server's certificate.
    """

    def __init__(self, access: Access, user_agent: str = USER_AGENT, per_s: float = REQUESTS_PER_S) -> None:
        self._user_agent = user_agent
        self._use(access.client, f"context {access.context}")
        self.pace = Pace(per_s)
        self.wall_offset_s = 0.0
        """The server's wall clock minus this host's monotonic clock (s), or up to 1 s less; 0 if unknown."""

    def watch_for(self, seconds: int) -> None:
        """Let each later watch last this long (s); it has a bookmark 2 s before its end.

        Source: k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go (nextBookmarkTime).
        """
        self.watch_options = {"allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)}

    def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], read_timeout_s: float
    ) -> urllib3.BaseHTTPResponse:
        self.pace.wait()
        request_headers = {"User-Agent": self._user_agent, **headers}
        response = super()._request(method, url, body, request_headers, read_timeout_s)
        offset_s = server_time_s(response.headers.get("Date", "")) - time.monotonic()
        self.wall_offset_s = max(self.wall_offset_s, offset_s)
        return response


@dataclass(frozen=True)
class ConnectedCluster:
    """The inventory's cluster, whose UID was compared with the inventory's."""

    inventory: Inventory
    access: Access
    api: Api

    def nodes(self) -> Mapping[str, Json]:
        """Return the Nodes by name. Raises ApiError."""
        return {str(node["metadata"]["name"]): node for node in self.api.get(WATCHED["nodes"])["items"]}


@contextlib.contextmanager
def connected(
    path: Path, user_agent: str, rights: str, per_s: float = REQUESTS_PER_S
) -> Iterator[ConnectedCluster]:
    """Connect to the cluster of an inventory file.

    Args:
        path: The inventory file.
        user_agent: Name of the client in the audit log.
        rights: What the user must be allowed to do, for the message of a refusal.
        per_s: Most requests per second.

    Raises:
        Problem: The inventory or the kubeconfig cannot be used, the cluster is another one, or it refuses or
            does not answer.
    """
    content = inventory.read(path)
    access = load_kubeconfig(content.cluster.kubeconfig, content.cluster.context)
    terminal.say(f"context {access.context}, server {access.server}, user {access.user}")
    with contextlib.closing(PacedApi(access, user_agent, per_s)) as api:
        try:
            uid = str(api.get("/api/v1/namespaces/kube-system")["metadata"]["uid"])
            if uid != content.cluster.uid:
                what = f"the inventory is about another cluster: this one has the UID {uid}"
                raise Problem(what, f"{content.path}: cluster.uid", "choose the inventory's context or UID")
            yield ConnectedCluster(content, access, api)
        except ApiError as error:
            if error.status:
                step = f"the user needs {rights}"
                raise Problem(f"the API server refuses: {error}", access.context, step) from error
            raise no_answer(error, access.context) from error


def no_answer(error: ApiError, where: str) -> Problem:
    """Return the problem of a request that got no answer."""
    step = "check the server's address in the kubeconfig, and any proxy or VPN to it"
    if "Read timed out" in str(error):
        step = "the server is slow: see `kubectl get --raw '/readyz?verbose'`, and try again"
    return Problem(f"the API server does not answer: {error}", where, step)
