"""The inventory of an existing cluster: how to reach it, and which nodes may be harmed by which faults."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import combinations
from pathlib import Path
from typing import cast

from jsonschema import Draft202012Validator, ValidationError

from nodeproof import catalogue
from nodeproof.catalogue import Document, Place
from nodeproof.existing import guards
from nodeproof.existing.guards import Abort, Alerts, Hours
from nodeproof.existing.power import DRIVERS, Power
from nodeproof.faults import Fault
from nodeproof.faults.machine import PowerOff
from nodeproof.faults.partition import Partition
from nodeproof.faults.units import UnitDown
from nodeproof.hints import page
from nodeproof.model import redact
from nodeproof.model.pattern import Json
from nodeproof.model.problem import Problem

INJECTABLE: Mapping[type[Fault], Set[str]] = {
    Partition: {"direction", "answer"},
    PowerOff: frozenset(),
    UnitDown: frozenset(),
}
"""The faults that a run can inject, each with the arguments that a scenario may set; the schema has more."""
_SCHEMA = Path(__file__).with_name("inventory.schema.json")
_NEXT_STEP = f"correct the inventory; see {page('docs/how-to/prepare-your-cluster.md')}"
_VARIABLE = "secret_env"
"""The key whose value is the name of a secret; the schema allows the name of a variable only."""
_GUARDS: Mapping[str, Callable[[Json], Iterator[tuple[Place, str]]]] = {
    "abort": guards.abort_errors,
    "alerts": guards.alert_errors,
    "hours": guards.hours_errors,
}
"""Checks of the entries about guards, beyond the schema."""
_KEY_MESSAGES = frozenset({"required", "enum"})
"""Validators whose messages contain no value of the file other than a short word."""


@dataclass(frozen=True)
class ClusterAddress:
    """A context of a kubeconfig, and the UID of the cluster that it must lead to.

    An empty `kubeconfig` stands for the files that kubectl reads. `uid` is that of namespace kube-system.
    """

    kubeconfig: str
    context: str
    uid: str


@dataclass(frozen=True)
class Ssh:
    """The files of OpenSSH that say how to reach the nodes."""

    config: Path
    known_hosts: Path


@dataclass(frozen=True)
class AnsibleHosts:
    """A group of an Ansible inventory."""

    inventory: Path
    group: str


@dataclass(frozen=True)
class ListedNode:
    """A node that may be harmed, by these faults alone."""

    name: str
    faults: tuple[str, ...]
    power: Power | None
    is_control_plane: bool
    """Whether the inventory allows faults although the node runs the control plane."""


@dataclass(frozen=True)
class Inventory:
    """An existing cluster, its nodes that may be harmed, by name, when that may be, and what ends a fault."""

    path: Path
    cluster: ClusterAddress
    ssh: Ssh
    hosts: AnsibleHosts | None
    nodes: Mapping[str, ListedNode]
    abort: Abort = field(default_factory=Abort)
    hours: Hours | None = None
    alerts: Alerts | None = None
    pod_image: str = ""
    """The image of scenarios' pods; empty if there may be none."""

    def check_run(self, now: datetime) -> None:
        """Check that a run may begin now. Raises Problem with one line for all reasons."""
        reasons = list(self.refusals(now, timedelta()))
        if reasons:
            step = f"wait, or change the inventory; see {page('docs/how-to/harm-your-cluster.md')}"
            raise Problem(f"no run may begin now: {'; '.join(reasons)}", str(self.path), step)

    def refusals(self, now: datetime, lasts: timedelta) -> Iterator[str]:
        """Yield why nothing that lasts so long may begin now, whatever its node."""
        if self.hours:
            yield from self.hours.refusals(now, now + lasts)
        if self.alerts:
            yield from self.alerts.refusals()

    def abort_reasons(self) -> list[str]:
        """Return why a fault must end now, or must not begin; a condition that does not answer is one."""
        return self.abort.reasons(self.path.parent)


def not_available(faults: Iterable[str]) -> str:
    """Return which of these faults no run can inject yet, as text; empty if it can inject all."""
    names = sorted({fault.name for fault in INJECTABLE})
    others = ", ".join(sorted({*faults} - {*names}))
    return (
        f"not available on somebody's own cluster yet: {others} (only {', '.join(names)})" if others else ""
    )


def read(path: Path) -> Inventory:
    """Read an inventory file and check that the files it names exist.

    Raises:
        Problem: The file cannot be read or is invalid; one line for each bad entry, with `file:line:column`.
    """
    try:
        text = catalogue.read(path)
    except OSError as error:
        what = f"cannot read the inventory: {error.strerror}"
        raise Problem(what, str(path), "name an inventory with --cluster") from error
    return parse(text, path)


def parse(text: str, path: Path) -> Inventory:
    """Read the content of an inventory file; its paths are relative to the folder of `path`.

    Raises:
        Problem: An entry is invalid; one line for each, with `file:line:column`.
    """
    try:
        document = Document.of(text, str(path))
    except Problem as problem:
        raise Problem(problem.what, problem.where, _NEXT_STEP) from problem
    errors = list(_secrets((), document.value, redact.value(document.value)))
    schema = json.loads(_SCHEMA.read_text(encoding="utf-8"))
    errors += map(_schema_error, Draft202012Validator(schema).iter_errors(document.value))
    if not errors:
        errors += [
            *_power_errors(document.value),
            *_guard_errors(document.value),
            *_missing_files(document.value, path.parent),
        ]
    if not errors:
        content = _inventory(document.value, path)
        errors = list(_shared_machines(content.nodes.values()))
    if errors:
        raise _joined(document, errors)
    return content


_Error = tuple[Place, str]
"""Place and reason of an invalid entry."""


def _joined(document: Document, errors: Sequence[_Error]) -> Problem:
    """Return one Problem whose detail has the lines of all errors but the first, in the file's order."""
    problems = [document.problem(place, what) for place, what in errors]
    first, *others = sorted(problems, key=lambda problem: [*map(int, problem.where.rsplit(":", 2)[1:])])
    lines = [Problem(other.what, other.where, _NEXT_STEP).line for other in others]
    return Problem(first.what, first.where, _NEXT_STEP, "\n".join(lines))


def _schema_error(error: ValidationError) -> _Error:
    """Return the place and the reason; no reason contains a value, which might be a secret."""
    place, schema, content = tuple(error.absolute_path), cast(Json, error.schema), cast(Json, error.instance)
    if error.validator == "additionalProperties":
        keys = schema["properties"]
        unknown = min(set(content) - set(keys))
        return (*place, unknown), f"unknown key {unknown}; the keys are {', '.join(keys)}"
    if "propertyNames" in error.absolute_schema_path:
        place = (*place, content)
    if error.validator in _KEY_MESSAGES:
        return place, error.message
    return place, f"expected {schema.get('description', 'another value')}"


def _secrets(place: Place, content: Json, redacted: Json) -> Iterator[_Error]:
    """Yield the places whose value looks like a secret."""
    if isinstance(content, dict) and isinstance(redacted, dict) and content.keys() == redacted.keys():
        for key, part in content.items():
            if key != _VARIABLE:
                yield from _secrets((*place, key), part, redacted[key])
    elif isinstance(content, list) and isinstance(redacted, list):
        for number, (part, other) in enumerate(zip(content, redacted, strict=True)):
            yield from _secrets((*place, number), part, other)
    elif content != redacted:
        yield place, "an inventory must not contain a secret; name its environment variable in secret_env"


def _power_errors(content: Json) -> Iterator[_Error]:
    """Yield invalid power drivers, and nodes that lack one, or the host of its dead-man's switch."""
    drivers, nodes = content.get("power", {}), content["nodes"]
    for name, entry in drivers.items():
        try:
            _power(entry)
        except Exception as error:  # a plugin's own, too
            yield ("power", name), str(error) or repr(error)
        if _VARIABLE in entry and not redact.is_secret_name(entry[_VARIABLE]):
            what = "a name that shows a secret, such as BMC_PASSWORD: reports are redacted by it"
            yield ("power", name, _VARIABLE), what
        if entry.get("switch") in nodes:
            yield ("power", name, "switch"), "switch must not be a node that may be harmed"
    for name, entry in nodes.items():
        driver = entry.get("power")
        if driver is not None and driver not in drivers:
            what = f"no power driver {driver}; the drivers are {', '.join(drivers) or 'none'}"
            yield ("nodes", name, "power"), what
        elif PowerOff.name in entry["may"]:
            place = ("nodes", name, "may", entry["may"].index(PowerOff.name))
            if driver is None:
                yield place, f"{PowerOff.name} needs the key power at {name}"
            elif "switch" not in drivers[driver]:
                why = "a host whose timer restores the power if nodeproof ends"
                yield place, f"{PowerOff.name} needs the key switch at {driver}: {why}"


def _shared_machines(nodes: Iterable[ListedNode]) -> Iterator[_Error]:
    """Yield nodes whose driver fails, or would cut the power of another one."""
    powered = []
    for node in nodes:
        if node.power:
            try:
                powered.append((node.name, node.power.driver.command("status", node.name, "")))
            except Exception as error:  # a plugin's own, too
                yield ("nodes", node.name, "power"), f"driver {node.power.driver.name}: {error!r}"
    for (name, command), (other, same) in combinations(powered, 2):
        if command == same:
            yield ("nodes", other, "power"), f"the driver of {other} has the power of {name}, too"


def _guard_errors(content: Json) -> Iterator[_Error]:
    for key, errors_of in _GUARDS.items():
        for place, what in errors_of(content[key]) if key in content else ():
            yield (key, *place), what


def _missing_files(content: Json, folder: Path) -> Iterator[_Error]:
    places = (("cluster", "kubeconfig"), ("ssh", "config"), ("ssh", "known_hosts"), ("hosts", "ansible"))
    for section, key in places:
        name = content.get(section, {}).get(key)
        if name is not None and not _resolved(name, folder).exists():
            yield (section, key), f"no such file: {_resolved(name, folder)}"


def _resolved(name: str, folder: Path) -> Path:
    try:
        return folder / Path(name).expanduser()
    except RuntimeError:
        return folder / name


def _inventory(content: Json, path: Path) -> Inventory:
    cluster, ssh, hosts, folder = content["cluster"], content["ssh"], content.get("hosts"), path.parent
    kubeconfig = str(_resolved(cluster["kubeconfig"], folder)) if "kubeconfig" in cluster else ""
    drivers = {name: _power(entry) for name, entry in content.get("power", {}).items()}
    return Inventory(
        path,
        ClusterAddress(kubeconfig, cluster["context"], cluster["uid"]),
        Ssh(_resolved(ssh["config"], folder), _resolved(ssh["known_hosts"], folder)),
        AnsibleHosts(_resolved(hosts["ansible"], folder), hosts["group"]) if hosts else None,
        {name: _node(name, entry, drivers) for name, entry in content["nodes"].items()},
        guards.parse_abort(content.get("abort")),
        guards.parse_hours(content.get("hours")),
        guards.parse_alerts(content.get("alerts")),
        content.get("pods", {}).get("image", ""),
    )


def _node(name: str, entry: Json, drivers: Mapping[str, Power]) -> ListedNode:
    power = drivers[entry["power"]] if "power" in entry else None
    return ListedNode(name, tuple(entry["may"]), power, entry.get("control_plane", False))


def _power(entry: Json) -> Power:
    """Return a power driver. Raises ValueError, or an error of a plugin, if its options are invalid."""
    driver = DRIVERS.get(entry["driver"])
    if driver is None:
        choices = "; ".join([f"the drivers are {', '.join(DRIVERS)}", *DRIVERS.errors])
        raise ValueError(f"no power driver {entry['driver']}; {choices}")
    return Power(driver(entry.get("options", {})), entry.get(_VARIABLE, ""), entry.get("switch", ""))
