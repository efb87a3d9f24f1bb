"""Actions: what a scenario does to its cluster, from a request to the API to a workload or a restart."""

from __future__ import annotations

import json
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Literal, ParamSpec, TypeVar
from urllib.parse import quote

from nodeproof import proc
from nodeproof.artifacts.components import ROLES
from nodeproof.checks import moments
from nodeproof.checks.moments import WRITE
from nodeproof.cluster import workloads
from nodeproof.cluster.api import Api, ApiError
from nodeproof.cluster.published import total
from nodeproof.cluster.resources import NAMESPACE, pods
from nodeproof.cluster.resources import node as node_path
from nodeproof.cluster.resources import pod as pod_path
from nodeproof.cluster.workloads import Pod, PodSettings, Witness, pod_spec, tolerates
from nodeproof.faults.providers import Cloud, State, replace_in_cloud
from nodeproof.labs.base.spec import DEFAULT_SHAPE, NodeSpec, Shape, check_node_name
from nodeproof.labs.client.handle import MANAGER, LabHandle
from nodeproof.labs.client.safety import MARK
from nodeproof.machines.machine import Machine, MachineError, checked
from nodeproof.model.cluster import LEASE_NAMESPACE, UNREACHABLE
from nodeproof.model.history import parse_time
from nodeproof.model.judgment import Effect, Moment, Observation, with_effect, words_in
from nodeproof.model.needs import CLOUD
from nodeproof.model.pattern import PRESENT, Json
from nodeproof.model.problem import Problem
from nodeproof.model.window import POD_GC_S, QUARANTINE_S
from nodeproof.recording.recorder import Recording
from nodeproof.waiting import wait_until

T = TypeVar("T")
P = ParamSpec("P")


@dataclass(frozen=True)
class ActionContext:
    """Context of an action.

    `keep_clock` measures a node's clock, by which reports from that node are dated.
    """

    lab: LabHandle
    recording: Recording | None
    keep_clock: Callable[[str], None]

    def observed(self, what: str, subject: str, value: Json, request_t: float) -> Observation:
        """Return the answer to an action as an observation, and record it if a recording is running."""
        observation = Observation(uuid.uuid4().hex[:8], what, subject, value)
        if self.recording is not None:
            self.recording.append(
                "observed", **observation.to_json(), value=value, asked_t=round(request_t, 6)
            )
        return observation


@dataclass(frozen=True)
class Action(Generic[T]):
    """Change of the cluster, performed by `do`; a repeated change is a new action.

    `text` describes it in messages and in the recording. `affected_nodes` must be targets of the scenario.
    One that has an `effect` has no other, and is allowed on somebody's own cluster.
    `do` raises ApiError, MachineError or Problem.
    """

    text: str
    do: Callable[[ActionContext], T]
    affected_nodes: tuple[str, ...] = ()
    effect: Effect | None = None
    id: str = field(default_factory=lambda: uuid.uuid4().hex[:8])

    @property
    def begun(self) -> Moment:
        """The moment when the action began."""
        return Moment("action-step", {"id": self.id, "step": "begun", "text": self.text})

    @property
    def ended(self) -> Moment:
        """The moment when the action was completed."""
        return Moment("action-step", {"id": self.id, "step": "ended", "text": self.text})


def _only(effect: Effect) -> Callable[[Callable[P, Action[T]]], Callable[P, Action[T]]]:
    """Return a decorator of a word whose actions have no other effect on somebody's own cluster."""

    def mark(word: Callable[P, Action[T]]) -> Callable[P, Action[T]]:
        @with_effect(effect)
        @wraps(word)
        def make(*args: P.args, **arguments: P.kwargs) -> Action[T]:
            return replace(word(*args, **arguments), effect=effect)

        return make

    return mark


def perform(action: Action[T], context: ActionContext) -> T:
    """Perform an action and record its beginning and end, if a recording is running, whatever it raises."""

    def record_step(step: str) -> None:
        if context.recording is not None:
            context.recording.append("action", time.monotonic(), id=action.id, text=action.text, step=step)

    record_step("begun")
    try:
        outcome = action.do(context)
    except BaseException:
        record_step("failed")
        raise
    record_step("ended")
    return outcome


_READ_TIMEOUT_S = 10.0
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
    completed = lab.fleet.machine(node).run(["cat", path], timeout_s=_READ_TIMEOUT_S)
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


@_only("reads")
def read(path: str) -> Action[Observation]:
    """Send a GET and observe its answer, whatever it is: `status` (HTTP, 0 if none came) and `body`.

    The action raises Problem for a path with a query.
    """

    def do(context: ActionContext) -> Observation:
        _refuse_query(path)
        requested_t = time.monotonic()
        try:
            answer = context.lab.cluster.api.ask("GET", path, None, {}, ())
        except ApiError as error:
            answer = {"status": error.status, "body": str(error)}
        return context.observed(f"GET {path}", ADMIN, _without_secrets(answer), requested_t)

    return Action(f"read {path}", do)


def send_request(method: Method, path: str, body: Json = None, *, by: By = None) -> Action[Observation]:
    """Send a request and observe its answer, even a refusal: `status` (HTTP) and `body`.

    The ledger lists what a POST creates before the request is sent. The object is removed when the scenario
    ends, otherwise by the next run or `nodeproof heal`. The request is in the report, so it must not contain
    secrets.

    The action raises Problem for a POST without a name, and for a path with a query.
    """

    def do(context: ActionContext) -> Observation:
        if method != "POST":
            return _send(context, method, path, body, by)
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
    query = "" if method == "GET" else "?dryRun=All"
    return Action(
        f"{_text(method, path, by)}, dry", lambda context: _send(context, method, path, body, by, query)
    )


def _send(
    context: ActionContext, method: Method, path: str, body: Json, by: By, query: str = ""
) -> Observation:
    _refuse_query(path)
    requested_t = time.monotonic()
    if isinstance(by, OwnCredential):
        with api_of(context.lab, by.node) as own:
            answer = own.ask(method, f"{path}{query}", body, {}, ())
    else:
        headers = {} if by is None else {"Impersonate-User": by.name}
        api, groups = context.lab.cluster.api, by.groups if by else ()
        answer = api.ask(method, f"{path}{query}", body, headers, groups)
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
        step = "use another command: its output is in the report"
        raise Problem(f"kubectl {secret} may show a secret", "kubectl(...)", step)
    verb = next(iter(arguments), "")
    # Each may be a node's name, such as `node-1` or `node/node-1`.
    names = [argument.rpartition("/")[2] for argument in arguments[1:] if not argument.startswith("-")]
    if verb in _CORDONS and any(argument.startswith(("-l", "--selector")) for argument in arguments):
        step = "name the nodes, so that they can be uncordoned"
        raise Problem(f"kubectl {verb} by a selector", "kubectl(...)", step)
    command = f"kubectl {' '.join(arguments)}"

    def do(context: ActionContext) -> Observation:
        for name in names if verb in _CORDONS else ():
            context.lab.safety.register_cordon(name)
        requested_t = time.monotonic()
        completed = context.lab.cluster.run_kubectl(arguments, _KUBECTL_TIMEOUT_S, "")
        value = {name: completed[name] for name in ("status", "stdout", "stderr")}
        observation = context.observed(command, ADMIN, value, requested_t)
        if completed["status"] != 0 and not may_fail:
            message = str(completed["stderr"]).strip().replace("\n", " ")
            raise Problem(f"{command}: {message}", f"lab {context.lab.name}", "try `nodeproof kubectl`")
        for name in names if verb == "uncordon" and completed["status"] == 0 else ():
            context.lab.safety.forget_cordon(name)
        return observation

    return Action(command, do)


def _may_show_secret(argument: str) -> bool:
    names = {name.partition("/")[0].partition(".")[0] for name in argument.lower().split(",")}
    return bool(names & _SECRETS) or argument in _INSIDE or argument.startswith(_OPTIONS)


_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASE_NAMESPACE}/leases"


def create_node(name: str, labels: Mapping[str, str] | None = None) -> Action[Observation]:
    """Create a Node without a kubelet; it is removed when the scenario ends."""
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": dict(labels or {})}}
    return send_request("POST", "/api/v1/nodes", body)


def labels_of(key: str, value: str) -> Mapping[str, str]:
    """Return the label that `label_node` sets, for a nodeSelector or a pattern."""
    return {f"{workloads.OWN_LABELS}{key}": value}


def label_node(name: str, key: str, value: str) -> Action[None]:
    """Set the label `scenario.nodeproof.dev/KEY` on a node, or change it; the scenario's end removes it."""
    body = {"metadata": {"labels": labels_of(key, value)}}

    def do(context: ActionContext) -> None:
        context.lab.cluster.api.patch(node_path(name), body)

    return Action(f"label {name} with {key}={value}", do)


def unlabel_node(name: str, key: str) -> Action[Observation]:
    """Remove the label that `label_node` set."""
    labels = {f"{workloads.OWN_LABELS}{key}": None}
    return send_request("PATCH", node_path(name), {"metadata": {"labels": labels}})


def set_condition(name: str, type_: str, status: str) -> Action[Observation]:
    """Set a condition of a node, as its kubelet or another reporter would; a kubelet sets its own again."""
    conditions = [{"type": type_, "status": status, "reason": "Said", "message": "by nodeproof"}]
    return send_request("PATCH", f"{node_path(name)}/status", {"status": {"conditions": conditions}})


def keep_alive(name: str) -> Action[None]:
    """Report a Node without a kubelet as Ready, and renew its Lease every R until the recording ends.

    The action raises Problem if there is no recording.
    """

    def do(context: ActionContext) -> None:
        recording, api = context.recording, context.lab.cluster.api
        if recording is None:
            raise Problem("nothing is being recorded", "keep_alive", "use `with lab.record():` around it")
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": _now()}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
        send_request("POST", _LEASES, {**body, "spec": spec}).do(context)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
        ready |= {"lastHeartbeatTime": _now(), "lastTransitionTime": _now()}
        api.patch(f"{node_path(name)}/status", {"status": {"conditions": [ready]}})

        def renew() -> None:
            api.patch(f"{_LEASES}/{name}", {"spec": {"renewTime": _now()}})

        recording.repeat(context.lab.configuration["R"], renew)

    return Action(f"keep {name} alive", do)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_FLAG = re.compile(r"--[A-Za-z0-9._:/,=@-]*")


def check_flags(flags: Sequence[str]) -> None:
    """Reject flags that a shell or a unit file would split. Raises Problem."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise Problem(f"invalid flag {flag!r}", "flags", "use --NAME=VALUE with plain characters")


def join(
    name: str,
    zone: str = "",
    *,
    node: str = "",
    flags: Sequence[str] = (),
    shape: Shape = DEFAULT_SHAPE,
    **kubelet: Json,
) -> Action[None]:
    """Boot a new machine and start its kubelet; the machine and its Node are removed after the scenario.

    If that fails, the next run or `nodeproof heal` removes them.

    Args:
        name: The machine's name.
        zone: By default the zone of the lab's first node.
        node: The name of its Node; by default the machine's.
        flags: Kubelet flags besides the lab's.
        shape: A shape of its own needs the feature `shapes`.
        **kubelet: Fields of KubeletConfiguration.

    Raises:
        Problem: By the action, if the machine cannot join.
    """

    def do(context: ActionContext) -> None:
        check_node_name(name)
        node_name = check_node_name(node or name)
        check_flags(flags)
        fleet = context.lab.fleet
        node_zone = zone or fleet.nodes()[0].zone
        if context.lab.zone not in ("", node_zone):
            raise Problem(f"{node_zone} is not the scenario's zone", "join(...)", f"use {context.lab.zone}")
        for new_name in {name, node_name}:
            if fleet.has(new_name):
                reason = f"a node named {new_name} already exists"
                raise Problem(reason, f"lab {context.lab.name}", "use another name")
        context.lab.safety.register_node(name, node_name)
        if context.recording is not None:
            options: Json = {"kubelet": kubelet, "flags": list(flags), "as": node_name}
            context.recording.append("machine", node=name, step="joining", **options)
        own: Json = {"kubelet": kubelet, "flags": tuple(flags), "node": node_name, "shape": shape}
        fleet.join(NodeSpec(name, fleet.free_slot(), node_zone, **own))

    return Action(f"{name} joins", do)


_TIMEOUT_S, _TRY_TIMEOUT_S = 60.0, 90.0
_STARTS_S, _RUNS_S = 40, 10
"""How long a tried kubelet may take until it has started, and how long it must run after that (s)."""
_STILL_RUNS, _UNDECIDED = 124, 125
"""Exit statuses of `_TRY`: the kubelet kept running; it could not be tried, or did not start in time."""
_SETTINGS, _HOME = "/run/nodeproof-tried.json", "/run/nodeproof-tried"
_TRY = f"""
starts_s=$1 runs_s=$2; shift 2
cat >{_SETTINGS} && : >{_HOME}.log || exit {_UNDECIDED}
timeout --kill-after=5 "$((starts_s + 2 * runs_s))" "$@" >>{_HOME}.log 2>&1 &
runs() {{ kill -0 $! 2>/dev/null; }}
started() {{ grep -q "Started kubelet" {_HOME}.log; }}
until started || ! runs || [ "$SECONDS" -ge "$starts_s" ]; do sleep 0.5; done
if started && runs; then timeout "$runs_s" tail --pid=$! -f /dev/null; fi
if runs; then
    started && status={_STILL_RUNS} || status={_UNDECIDED}
    kill $!
    wait $!
else
    wait $!
    status=$?
    # These are of timeout(1): it ended the kubelet, or could not run it.
    case $status in 12[4-7] | 137) status={_UNDECIDED} ;; esac
fi
sed '/^goroutine /,$d' {_HOME}.log | tail -n 5
exit "$status"
"""
"""Tries a kubelet: the arguments are both times (s) and its command; its settings are on standard input.

It checks most settings before it logs that it started (RunKubelet in cmd/kubelet/app/server.go), which takes
long on a busy machine, and the others soon after that.
"""
_ALONE: Json = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "authentication": {"webhook": {"enabled": False}},
    "authorization": {"mode": "AlwaysAllow"},
    "port": 10999,
    "healthzPort": 0,
    "failCgroupV1": False,
    "volumePluginDir": f"{_HOME}/volume-plugins",
    "podLogsDir": f"{_HOME}/pod-logs",
}
_CGROUP_V1 = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh")
"""A mount that looks like cgroup v1 to a kubelet: a tmpfs, which has the hierarchies below it.

Source: IsCgroup2UnifiedMode in github.com/opencontainers/cgroups.
"""
_RESTART = """
[ "$#" -eq 0 ] || sed -i "/^KUBELET_FLAGS=/ s|\\$| $*|" /etc/default/kubelet || exit 1
systemctl restart kubelet.service
"""


def leave(name: str) -> Action[None]:
    """Power off a machine that the scenario joined, for good; its Node stays. The action raises Problem."""

    def do(context: ActionContext) -> None:
        _joined(context, name)
        context.lab.fleet.leave(name)

    return Action(f"{name} leaves for good", do)


def restart_joined(name: str, *flags: str) -> Action[None]:
    """Restart the kubelet of a machine that the scenario joined, with additional flags.

    The action raises MachineError, Problem.
    """

    def do(context: ActionContext) -> None:
        machine = _joined(context, name)
        check_flags(flags)
        argv = ["sh", "-c", _RESTART, "sh", *flags]
        checked(machine.run(argv, timeout_s=_TIMEOUT_S), f"{name}: sh")

    return Action(f"restart the kubelet of {name} {' '.join(flags)}".strip(), do)


def run_on(name: str, *argv: str) -> Action[Observation]:
    """Run a command on a machine that the scenario joined and observe its `status`, `stdout` and `stderr`.

    The action raises MachineError, Problem.
    """

    def do(context: ActionContext) -> Observation:
        machine, requested_t = _joined(context, name), time.monotonic()
        completed = machine.run(list(argv), timeout_s=_TIMEOUT_S)
        return context.observed(" ".join(argv), name, asdict(completed), requested_t)

    return Action(f"run {' '.join(argv)} on {name}", do)


def try_kubelet(name: str, *flags: str, on_cgroup_v1: bool = False, **kubelet: Json) -> Action[Observation]:
    """Start a second kubelet, of no cluster, on a machine that the scenario joined, and observe how it ends.

    `status` is its exit code, or None if it started, kept running and had to be stopped; `output` is its last
    output, without the stack of a panic. On a real machine a kubelet that keeps running cleans up existing
    pods.

    The action raises MachineError, Problem.

    Args:
        name: The machine's name.
        *flags: Flags of the kubelet.
        on_cgroup_v1: Whether it finds no cgroup v2, whatever the machine has.
        **kubelet: Fields of KubeletConfiguration.
    """

    def do(context: ActionContext) -> Observation:
        machine, requested_t = _joined(context, name), time.monotonic()
        (own,) = (node.kubelet for node in context.lab.fleet.nodes() if node.name == name)
        program = own if context.lab.kind.is_hollow else "/usr/local/bin/kubelet"
        settings = json.dumps({**_ALONE, **kubelet})
        prefix = _CGROUP_V1 if on_cgroup_v1 else ()
        argv = [
            *("bash", "-c", _TRY, "bash", str(_STARTS_S), str(_RUNS_S)),
            *prefix,
            program,
            f"--config={_SETTINGS}",
            f"--root-dir={_HOME}",
            f"--cert-dir={_HOME}",
            *flags,
        ]
        completed = machine.run(argv, timeout_s=_TRY_TIMEOUT_S, stdin=settings)
        if completed.status == _UNDECIDED:
            what = f"a kubelet could not be tried, or neither started nor ended within {_STARTS_S} s"
            output = completed.stdout + completed.stderr
            raise Problem(what, name, "run the scenario again on an idle host", output)
        status = None if completed.status == _STILL_RUNS else completed.status
        value = {"status": status, "output": completed.stdout}
        return context.observed(f"end of a kubelet {' '.join([*flags, *kubelet])}", name, value, requested_t)

    return Action(f"try a kubelet {' '.join([*flags, *kubelet])} on {name}", do)


def _joined(context: ActionContext, name: str) -> Machine:
    """Return a machine that the scenario joined. Raises Problem for every other machine."""
    if not context.lab.safety.has_joined(name):
        reason = f"the scenario did not join {name}"
        raise Problem(reason, f"lab {context.lab.name}", "use a machine from join(...)")
    return context.lab.fleet.machine(name)


def set_cloud_answers(answers: Mapping[str, State]) -> Action[None]:
    """Replace all answers of the cloud (the fault `cloud`) about nodes' machines.

    Raises:
        Problem: By the action, if the fault does not have the labels of a lost node, which it could not
            restore.
    """
    lost = tuple(node for node, state in answers.items() if state != "exists")

    def do(context: ActionContext) -> None:
        for fault in context.lab.safety.injector.active.values():
            unlabelled = [node for node in lost if isinstance(fault, Cloud) and not fault.labels.get(node)]
            if unlabelled:
                reason = f"labels of {', '.join(unlabelled)} are missing"
                raise Problem(reason, "set_cloud_answers(...)", "pass them to cloud(..., labels)")
        replace_in_cloud(context.lab.fleet.machine(CLOUD), "answers", answers)

    description = ", ".join(f"{node}: {state}" for node, state in answers.items()) or "that all exist"
    return Action(f"the cloud says {description}", do, affected_nodes=lost)


def set_cloud_addresses(node: str, **addresses: Sequence[str]) -> Action[None]:
    """Set a node's addresses in the cloud (the fault `cloud` with `initialises_nodes`), and clear all others.

    The addresses are given by type, such as `ExternalIP=["10.78.1.9"]`.
    """
    entries = [{"type": kind, "address": address} for kind, values in addresses.items() for address in values]
    description = ", ".join(f"{entry['type']} {entry['address']}" for entry in entries)

    def do(context: ActionContext) -> None:
        replace_in_cloud(context.lab.fleet.machine(CLOUD), "addresses", {node: entries})

    return Action(f"the cloud gives {node} {description or 'no address'}", do)


_PASSES_S, _FRACTION_S = 10.0, 1.0
"""Allowance for two passes with a late cache on a busy host, and for API times in whole seconds."""
OVER_S = QUARANTINE_S + POD_GC_S + _PASSES_S + _FRACTION_S
"""Age (s) of a Node at which the quarantine of an earlier Node of the same name has surely expired.

The collector may put the name into quarantine just before the Node is created. The first pass after the
quarantine, at most gcCheckPeriod later, removes it.
"""
_QUARANTINE_TIMEOUT_S, _PERIOD_S = OVER_S + 30.0, 1.0


def wait_podgc_quarantine(*nodes: str) -> Action[None]:
    """Wait until the pod garbage collector has no quarantine of an earlier Node of these names, up to 71 s.

    It returns at once if no Node was ever in quarantine, or if the Nodes are old enough. Use it before a
    scenario deletes a Node and measures from that: the rest of a quarantine shortens the next one.

    Each pass puts every missing Node into quarantine, even one whose pods it removes in that pass. A Node
    that is created again stays in quarantine until that expires (pkg/controller/podgc/gc_controller.go:
    gcOrphaned). If it is deleted before, its pods are removed when the older quarantine expires: too early.

    Raises:
        ApiError: By the action.
        Problem: By the action, if a Node is created again and again.
    """

    def do(context: ActionContext) -> None:
        api = context.lab.cluster.api
        if begun(api) == 0 or wait_until(lambda: _are_old(api, nodes), _QUARANTINE_TIMEOUT_S, _PERIOD_S):
            return
        names = ", ".join(nodes)
        message = f"after {_QUARANTINE_TIMEOUT_S:g} s, a Node of {names} is younger than {OVER_S:g} s"
        next_step = "something recreates it: look for its `create` requests in the lab's audit log"
        raise Problem(message, f"lab {context.lab.name}", next_step)

    return Action(f"wait until no quarantine of an earlier {' or '.join(nodes)} is left", do)


def begun(api: Api) -> float | None:
    """Return how often the running collector put a Node into quarantine; None if there is no such metric.

    The work queue counts each quarantine (AddAfter) as a retry, from the start of the process.

    Raises:
        ApiError: The metrics cannot be read.
    """
    text = api.text_at(f"{MANAGER}/metrics")
    return total(text, "workqueue_retries_total", {"name": "orphaned_pods_nodes"})


def _are_old(api: Api, names: tuple[str, ...]) -> bool:
    """Return whether these Nodes are old enough, by the API server's own clock. Raises ApiError."""
    # The object of a dry run has the current time.
    now = api.dry_run(pods(NAMESPACE), {"metadata": {"generateName": "probe-"}, "spec": pod_spec({})})
    return all(_created_t(now) - _created_t(api.get(node_path(name))) >= OVER_S for name in names)


def _created_t(document: Json) -> float:
    return parse_time(document["metadata"]["creationTimestamp"])


# Restarts of a node's services, and the exit of a component whose flags may be invalid


_UNIT_TIMEOUT_S = 30.0


def restart_unit(node: str, unit: str) -> Action[None]:
    """Restart a unit of a target by systemd, such as `dbus.service`; needs the feature `systemd`.

    The action raises MachineError.
    """
    return Action(
        f"restart {unit} of {node}", lambda context: restart(context, node, unit), affected_nodes=(node,)
    )


def restart(context: ActionContext, node: str, unit: str) -> None:
    """Restart a unit of a node. Raises MachineError."""
    argv = ["systemctl", "restart", unit]
    checked(context.lab.fleet.machine(node).run(argv, timeout_s=_UNIT_TIMEOUT_S), f"{node}: {unit}")


def restart_kubelet(node: str) -> Action[None]:
    """Restart a target's kubelet by systemd, without waiting for its health; needs the feature `systemd`."""

    def do(context: ActionContext) -> None:
        # The clock dates the kubelet's messages. The step comes first, so that its effects follow it.
        context.keep_clock(node)
        if context.recording is not None:
            context.recording.append("machine", node=node, step="kubelet-restarted")
        restart(context, node, "kubelet.service")

    return Action(f"restart the kubelet of {node}", do, affected_nodes=(node,))


def try_flags(component: str, *flags: str) -> Action[Observation]:
    """Start a component with flags and observe its end: `status` (its exit code), `stdout`, `stderr`.

    It also gets `--version`, so it prints the version and exits once it has accepted all flags. The action
    raises Problem for an unknown component.
    """

    def do(context: ActionContext) -> Observation:
        if component not in ROLES:
            raise Problem(f"unknown component {component!r}", "try_flags", f"use one of {', '.join(ROLES)}")
        requested_t = time.monotonic()
        argv = [str(context.lab.components.path(component)), *flags, "--version"]
        completed = proc.run(argv, timeout_s=_UNIT_TIMEOUT_S, check=False)
        what = f"exit of {component} {' '.join(flags)}"
        return context.observed(what, component, asdict(completed), requested_t)

    return Action(f"start {component} {' '.join(flags)}", do)


_RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def _pod_settings(context: ActionContext, node: str) -> PodSettings:
    """Return how pods run on a node; on somebody's own cluster create their namespace.

    Raises:
        ApiError: The API server does not answer.
        Problem: The owner allows no pods there, or the namespace cannot be created.
    """
    lab = context.lab
    if lab.pods is None:
        raise Problem("no pods are allowed", f"lab {lab.name}", "name their image in the inventory: `pods`")
    if lab.pods.is_restricted:
        if node not in lab.fleet.node_names():
            raise Problem(f"{node} is not marked", f"lab {lab.name}", "run the pod on another node")
        _ensure_namespace(context, lab.pods.namespace)
    return lab.pods


def _ensure_namespace(context: ActionContext, name: str) -> None:
    """Create the namespace of a scenario's pods, unless it did; all of it is removed after the scenario.

    Raises:
        ApiError: The API server does not answer.
        Problem: It refuses the namespace.
    """
    lab, path = context.lab, "/api/v1/namespaces"
    if lab.safety.has_created(f"{path}/{name}"):
        return
    namespace = {"metadata": {"name": name, "labels": _RESTRICTED}}
    answer = send_request("POST", path, namespace).do(context).value
    if answer["status"] >= _REFUSED:
        body = answer["body"]
        reason = f"namespace {name}: {body['message'] if isinstance(body, Mapping) else body}"
        raise Problem(reason, f"lab {lab.name}", "delete it, or see docs/how-to/harm-your-cluster.md")
    lab.cluster.api.ensure(f"{path}/{name}/serviceaccounts", {"metadata": {"name": "default"}})


@_only("runs-pods")
def run_pod(
    *, on: str, tolerates_unreachable_s: int | None = None, tolerations: Sequence[Mapping[str, Json]] = ()
) -> Action[Pod]:
    """Run a pod on a node, with these tolerations.

    Args:
        on: The node's name.
        tolerates_unreachable_s: How long the pod tolerates that its node is unreachable (s); None adds no
            toleration.
        tolerations: Further tolerations.
    """
    unreachable = [] if tolerates_unreachable_s is None else [tolerates(UNREACHABLE, tolerates_unreachable_s)]
    all_tolerations = [*unreachable, *tolerations]
    return Action(
        f"run a pod on {on}",
        lambda context: workloads.run_pod(
            context.lab.cluster.api, on, all_tolerations, settings=_pod_settings(context, on)
        ),
    )


@_only("runs-pods")
def delete_pod(pod: Pod) -> Action[Observation]:
    """Request the deletion of a pod of the scenario, and observe the answer."""

    def do(context: ActionContext) -> Observation:
        lab = context.lab
        if lab.pods is None or pod.namespace != lab.pods.namespace:
            message = f"pod {pod.namespace}/{pod.name} is not in the namespace of the scenario's pods"
            raise Problem(message, f"lab {lab.name}", "use a pod of run_pod(...)")
        return _send(context, "DELETE", pod_path(pod.namespace, pod.name), None, None)

    return Action(f"delete pod {pod.name}", do)


_ADMISSION = "/apis/admissionregistration.k8s.io/v1"


def refuse(operation: Literal["DELETE", "UPDATE"], of: Pod | User, resource: str = "pods") -> Action[str]:
    """Deny an operation on a pod, or of a user, by an admission policy.

    The action returns the name of the policy and its binding.

    It takes effect after some seconds, and ends some seconds after the binding is deleted. Both are removed
    when the scenario ends.
    """
    name = _name()
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    refused = "request.name" if isinstance(of, Pod) else "request.userInfo.username"
    validation = {"expression": f"{refused} != '{of.name}'", "message": "nodeproof refuses it"}
    specs: Mapping[str, Json] = {
        "validatingadmissionpolicies": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [validation],
        },
        "validatingadmissionpolicybindings": {"policyName": name, "validationActions": ["Deny"]},
    }

    def do(context: ActionContext) -> str:
        for kind, spec in specs.items():
            body = {"metadata": {"name": name}, "spec": spec}
            send_request("POST", f"{_ADMISSION}/{kind}", body).do(context)
        return name

    return Action(f"refuse {operation} of {resource} of {of.name}", do)


def pending_pod(
    *,
    only_on: str,
    tolerations: Sequence[Mapping[str, Json]] = (),
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    **fields: Json,
) -> Action[Pod]:
    """Create a pod that the scheduler may bind to one node only, with these resources.

    `fields` are further fields of its spec, such as `using_pvc(PVC)`; its containers may have resources of
    their own.
    """
    placed = {"nodeSelector": {workloads.HOSTNAME_LABEL: only_on}, "tolerations": list(tolerations)}
    spec = pod_spec({**placed, **fields})
    resources = {"requests": dict(requests or {}), "limits": dict(limits or {})}
    spec["containers"] = [{"resources": resources, **container} for container in spec["containers"]]
    return _start_pod(f"a pod for {only_on} alone", only_on, spec)


def bound_pod(*, to: str, tolerations: Sequence[Mapping[str, Json]] = ()) -> Action[Pod]:
    """Create a pod that is bound to a node from the beginning, without the scheduler.

    Its kubelet may still reject it.
    """
    spec = pod_spec({"nodeName": to, "tolerations": list(tolerations)})
    return _start_pod(f"a pod bound to {to}", to, spec)


def _start_pod(text: str, node: str, spec: Json) -> Action[Pod]:
    return Action(text, lambda context: workloads.start_pod(context.lab.cluster.api, node, spec))


def create_pod(pod: Pod, *, finalizers: Sequence[str] = (), **fields: Json) -> Action[Observation]:
    """Create a pod of this name on its node, without the scheduler, and observe the answer.

    It does nothing, unless `fields` of its spec give other containers.
    """
    (main,) = pod_spec({})["containers"]
    metadata = {"name": pod.name, **({"finalizers": list(finalizers)} if finalizers else {})}
    spec = {"nodeName": pod.node, "containers": [main], **fields}
    return send_request("POST", pods(pod.namespace), {"metadata": metadata, "spec": spec})


CAST_GRACE_S = 7
"""Grace period (s) of the pod `patient` of a cast."""
_SYSTEM_NAMESPACE = "kube-system"


@dataclass(frozen=True)
class Cast:
    """Pods of one node that an eviction must not treat differently, and a namesake on another node.

    `compound` has two containers and a memory request, `patient` a grace period of `CAST_GRACE_S`, and
    `critical` the class system-node-critical. `system` is in kube-system, and `namesake` has its name, in the
    namespace of the others. None has an init container: in a fake container runtime it would not end.
    """

    compound: Pod
    patient: Pod
    critical: Pod
    system: Pod
    namesake: Pod

    @property
    def pods(self) -> Sequence[Pod]:
        """Its pods on the node."""
        return (self.compound, self.patient, self.critical, self.system)


def run_cast(*, on: str, namesake_on: str, tolerations: Sequence[Mapping[str, Json]] = ()) -> Action[Cast]:
    """Run pods of different kinds on a node, all with these tolerations, and a namesake of one elsewhere."""
    (main,) = pod_spec({})["containers"]
    several = [{**main, "resources": {"requests": {"memory": "8Mi"}}}, {**main, "name": "second"}]
    system_name = _name()

    def run(context: ActionContext, node: str, namespace: str, name: str, **fields: Json) -> Pod:
        spec = pod_spec({"nodeName": node, "tolerations": list(tolerations), **fields})
        send_request("POST", pods(namespace), {"metadata": {"name": name}, "spec": spec}).do(context)
        return Pod(namespace, name, node)

    def do(context: ActionContext) -> Cast:
        cast = Cast(
            compound=run(context, on, NAMESPACE, _name(), containers=several),
            patient=run(context, on, NAMESPACE, _name(), terminationGracePeriodSeconds=CAST_GRACE_S),
            critical=run(context, on, NAMESPACE, _name(), priorityClassName="system-node-critical"),
            system=run(context, on, _SYSTEM_NAMESPACE, system_name),
            namesake=run(context, namesake_on, NAMESPACE, system_name),
        )
        for pod in (*cast.pods, cast.namesake):
            workloads.wait_running(context.lab.cluster.api, pod, workloads.POD_TIMEOUT_S)
        return cast

    return Action(f"run a cast of pods on {on}", do)


def run_witnesses(*witnesses: Witness, on: str) -> Action[list[Pod]]:
    """Run pods on a node that record what happens to them, to be heard; needs the feature `real-pods`."""

    def start(context: ActionContext, witness: Witness) -> Pod:
        spec = pod_spec({"nodeName": on, **workloads.witness_fields(witness)})
        if witness.namespace == NAMESPACE:
            return workloads.start_pod(context.lab.cluster.api, on, spec)
        pod = Pod(witness.namespace, _name(), on)
        send_request("POST", pods(pod.namespace), {"metadata": {"name": pod.name}, "spec": spec}).do(context)
        return pod

    def do(context: ActionContext) -> list[Pod]:
        started = [start(context, witness) for witness in witnesses]
        for pod in started:
            workloads.wait_running(context.lab.cluster.api, pod, workloads.WITNESS_TIMEOUT_S)
        context.keep_clock(on)
        return started

    return Action(f"run {len(witnesses)} witnesses on {on}", do)


LABEL = "nodeproof.dev/workload"
Kind = Literal["DaemonSet", "Deployment", "Job", "ReplicaSet", "StatefulSet"]
_REFUSED_BY_BUDGET, _NO_POD = 429, 404
_IGNORES_DISRUPTIONS = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
_JOB = {"backoffLimit": 100, "podFailurePolicy": _IGNORES_DISRUPTIONS}
"""It goes on, however many of its pods are lost."""


@dataclass(frozen=True)
class Named:
    """An object of the scenario that the action `make` creates."""

    name: str
    make: Action[Observation]


@dataclass(frozen=True)
class Workload(Named):
    """A workload that the action `make` creates."""

    namespace: str = NAMESPACE
    path: str = ""
    """The path of its object."""

    @property
    def pods(self) -> Mapping[str, Json]:
        """A pattern that its pods match."""
        return {"metadata": {"namespace": self.namespace, "labels": {LABEL: self.name}}}

    @property
    def deletion(self) -> Moment:
        """The request to delete one of its pods."""
        return moments.written("pods", {"metadata": {**self.pods["metadata"], "deletionTimestamp": PRESENT}})

    def pod_written(self, **pattern: Json) -> Moment:
        """Match any write of one of its pods that has these fields."""
        return moments.written("pods", {**self.pods, **pattern})

    def running_on(self, node: Json) -> Moment:
        """Match a write of a running pod on a node, given by its name or a pattern."""
        return self.pod_written(spec={"nodeName": node}, status={"phase": "Running"})


def new_namespace() -> Named:
    """Return a new namespace of the scenario; it is removed with all its objects when the scenario ends."""
    name = _name()
    return Named(name, send_request("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))


def priority_class(value: int) -> Named:
    """Return a new PriorityClass of the scenario; it is removed when the scenario ends."""
    name = _name()
    body = {"metadata": {"name": name}, "value": value}
    return Named(name, send_request("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body))


def workload(kind: Kind, *, replicas: int = 1, namespace: str = NAMESPACE, **pod: Json) -> Workload:
    """Return a new workload, whose pods do nothing and run on the scenario's nodes.

    It and all that it creates is removed when the scenario ends, otherwise by the next run or `nodeproof
    heal`.

    Args:
        kind: The kind of the workload.
        replicas: The number of pods; a DaemonSet ignores it. A Job replaces those that it loses.
        namespace: The common namespace of all scenarios by default, or one of the scenario's own.
        **pod: Fields of the pods' spec.
    """
    name = _name()
    labels = {LABEL: name}
    spec: dict[str, Json] = {} if kind == "Job" else {"selector": {"matchLabels": labels}}
    if kind == "Job":
        spec |= {"parallelism": replicas, **_JOB}
    elif kind != "DaemonSet":
        spec["replicas"] = replicas
    if kind == "StatefulSet":
        spec["serviceName"] = name
    group = "batch/v1" if kind == "Job" else "apps/v1"
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}, "spec": spec}
    path = f"/apis/{group}/namespaces/{namespace}/{kind.lower()}s"

    def make(context: ActionContext) -> Observation:
        pod_fields = pod | {"nodeSelector": {**context.lab.placement, **pod.get("nodeSelector", {})}}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(pod_fields)}
        # A pod that records may run on any node.
        for name in context.lab.fleet.node_names() if "containers" in pod else ():
            context.keep_clock(name)
        return send_request("POST", path, {**body, "spec": {**spec, "template": template}}).do(context)

    return Workload(name, Action(f"POST {path}", make), namespace, f"{path}/{name}")


def scale(over: Workload, replicas: int) -> Action[Observation]:
    """Set the number of a workload's pods."""
    return send_request("PATCH", over.path, {"spec": {"replicas": replicas}})


def roll_out(over: Workload, revision: str) -> Action[Observation]:
    """Replace a workload's pods by those of another revision."""
    template = {"metadata": {"annotations": {"nodeproof.dev/revision": revision}}}
    return send_request("PATCH", over.path, {"spec": {"template": template}})


def evict(pod: str) -> Action[None]:
    """Request the eviction of a pod by its name; a budget may refuse it, or the pod may not exist."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}

    def do(context: ActionContext) -> None:
        try:
            context.lab.cluster.api.create(f"{pods(NAMESPACE)}/{pod}/eviction", body)
        except ApiError as error:
            if error.status not in (_REFUSED_BY_BUDGET, _NO_POD):
                raise

    return Action(f"evict {pod}", do)


def preferring(node: str) -> dict[str, Json]:
    """Return fields for `workload`: its pods prefer this node."""
    here = {"matchExpressions": [{"key": workloads.HOSTNAME_LABEL, "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": here}]
    return {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}


def using_pvc(pvc: str) -> dict[str, Json]:
    """Return fields for `workload` and `pending_pod`: the pods use a PVC and mount its volume."""
    return {"volumes": [{"name": "held", "persistentVolumeClaim": {"claimName": pvc}}]}


def pod_of(over: Workload, *, on: str) -> Action[Pod]:
    """Find the pod that a workload has on a node, whatever name its controller gave it."""

    def find(context: ActionContext) -> Pod:
        for entry in context.lab.cluster.api.get(pods(over.namespace))["items"]:
            labels = entry["metadata"].get("labels") or {}
            if labels.get(LABEL) == over.name and entry["spec"].get("nodeName") == on:
                return Pod(over.namespace, str(entry["metadata"]["name"]), on)
        reason = f"workload {over.name} has no pod on {on}"
        raise Problem(reason, f"pod_of(..., on={on!r})", "wait for its `running_on` first")

    return Action(f"find the pod of {over.name} on {on}", find)


def service(over: Workload, *, port: int = 80) -> Action[Observation]:
    """Create a headless Service over a workload's pods, with the workload's name.

    The pods of a StatefulSet are resolved through it.
    """
    spec = {"clusterIP": "None", "selector": {LABEL: over.name}, "ports": [{"port": port}]}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": over.name}, "spec": spec}
    return send_request("POST", f"/api/v1/namespaces/{over.namespace}/services", body)


def disruption_budget(
    over: Workload, *, min_available: str = "100%", always_allow_unready: bool = False
) -> Action[Observation]:
    """Create a PodDisruptionBudget over a workload's pods, perhaps with the policy AlwaysAllow."""
    selector = {"matchLabels": {LABEL: over.name}}
    policy = {"unhealthyPodEvictionPolicy": "AlwaysAllow"} if always_allow_unready else {}
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": over.name},
        "spec": {"minAvailable": min_available, "selector": selector, **policy},
    }
    return send_request("POST", f"/apis/policy/v1/namespaces/{over.namespace}/poddisruptionbudgets", body)


def _name() -> str:
    return f"probe-{uuid.uuid4().hex[:8]}"


_WRITERS = 3
"""Writers of each kind, as many as control planes: the balancer passes each new connection to the next."""
_LEAST, _BEGIN_TIMEOUT_S = 3 * _WRITERS, 20.0
"""Writes before the scenario goes on: an acknowledged one must be there to be lost."""


def write_repeatedly(namespace: str) -> Action[None]:
    """Create ConfigMaps in a namespace until the recording ends, and record each acknowledgement.

    The action ends once some writes are acknowledged. Three writers, each over its own connection, create one
    twice a second, and three others update the first one; an unanswered request delays its writer. Judge them
    with `write_acknowledged`, `has_writes` and `watched_writes`.
    """

    def do(context: ActionContext) -> None:
        if context.recording is None:
            raise Problem("nothing is being recorded", "write_repeatedly(...)", "use `with lab.record():`")
        update = partial(_update, name=_write(context.lab.cluster.api, namespace).partition(" ")[0])
        kinds: Sequence[Callable[[Api, str], str]] = (_write, update)
        for write in _WRITERS * [*kinds]:
            api = Api(context.lab.dir / "pki" / "admin.kubeconfig", context.lab.fleet.dial)
            context.recording.observe(WRITE, namespace, partial(write, api, namespace))
        has_begun = partial(_are_acknowledged, context.recording, namespace)
        if not wait_until(has_begun, _BEGIN_TIMEOUT_S):
            message = f"no {_LEAST} writes acknowledged within {_BEGIN_TIMEOUT_S:g} s"
            raise Problem(message, f"namespace {namespace}", "see the log of kube-apiserver")

    return Action(f"write to {namespace} repeatedly", do)


def _are_acknowledged(recording: Recording, namespace: str) -> bool:
    """Return whether enough writes were acknowledged to call the writers busy."""
    looks = recording.history().of_kind("observed")
    mine = (look for look in looks if (look.data["what"], look.data["subject"]) == (WRITE, namespace))
    return sum(look.data["value"] is not None for look in mine) >= _LEAST


def _write(api: Api, namespace: str) -> str:
    """Create a ConfigMap and return its name and resourceVersion. Raises ApiError."""
    body = {"metadata": {"name": f"write-{uuid.uuid4().hex[:8]}"}}
    return _version_of(api.create(f"/api/v1/namespaces/{namespace}/configmaps", body))


def _update(api: Api, namespace: str, name: str) -> str:
    """Update a ConfigMap and return its name and resourceVersion. Raises ApiError."""
    body = {"data": {"value": uuid.uuid4().hex}}
    return _version_of(api.patch(f"/api/v1/namespaces/{namespace}/configmaps/{name}", body))


def _version_of(obj: Json) -> str:
    return f"{obj['metadata']['name']} {obj['metadata']['resourceVersion']}"


if not TYPE_CHECKING:
    __all__ = words_in(globals(), Action, Named, Workload)  # noqa: PLE0605
