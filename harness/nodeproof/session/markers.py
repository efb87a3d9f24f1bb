"""A scenario's markers: its claims, needs and standing faults, and whether this run can satisfy them.

Claims and names are read from the syntax tree of its source. A scenario may call functions at the top of its
own file, directly or through others: their source counts.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

import pytest

from nodeproof.model.judgment import effect_of
from nodeproof.model.needs import Needs
from nodeproof.model.plan import Size
from nodeproof.model.problem import Problem
from nodeproof.model.verdict import Code
from nodeproof.safety.guard import MAX_LOST

if TYPE_CHECKING:
    from nodeproof.faults import Fault
    from nodeproof.session.options import Options

CLAIM_FIXTURE = "claim"
FaultFactory = Callable[[str], "Fault"]
"""Makes a new fault for a node."""
_COMMON_KEYS = ("fault", "id", "node")
"""The keys in the data of every fault."""
_ACTING = ("actions", "probes", "sources")
"""The modules of words that change a cluster, or read more of it than its API shows."""
SKEWED_AREAS = frozenset(
    {"eviction", "graceful-shutdown", "heartbeat", "priority-shutdown", "swap", "taints"}
)
"""The areas of claims about what kubelet and control plane do together; a claim's id begins with its area."""
IS_MARKED = pytest.StashKey[bool]()
"""Whether the source of a test has the marker `claims`: collection adds it to other scenarios."""


def claim_ids(scenario: Callable[..., object]) -> tuple[str, ...]:
    """Return the ids of the claims that a scenario judges, in the order of its source.

    An id is the string literal in a call `claim("page.sentence")`.

    Raises:
        Problem: An id is not a string literal.
    """
    ids: list[str] = []
    for node in _nodes(scenario):
        match node:
            case ast.Call(func=ast.Name(id="claim"), args=[ast.Constant(value=str(claim))], keywords=[]):
                ids.append(claim)
            case ast.Call(func=ast.Name(id="claim"), lineno=line):
                where = f"{_file_of(scenario)}:{line}"
                raise Problem(
                    "the id of a claim must be a string literal", where, 'write claim("page.sentence")'
                )
    return tuple(dict.fromkeys(ids))


def _words_used(item: pytest.Item) -> Iterator[tuple[str, object]]:
    """Yield what a scenario uses, by its name in the source: `swap`, or `faults.swap` of a module."""
    if isinstance(item, pytest.Function):
        names = inspect.unwrap(item.function).__globals__
        for node in _nodes(item.function):
            name, word = _resolve(node, names)
            if name:
                yield name, word


def _resolve(node: ast.AST, names: Mapping[str, object]) -> tuple[str, object]:
    """Return the name that a node is, and its object, by the global names of its file; else an empty name."""
    match node:
        case ast.Name(id=name):
            return name, names.get(name)
        case ast.Attribute(value=ast.Name(id=module), attr=name) if module in ("faults", *_ACTING):
            return f"{module}.{name}", getattr(names.get(module), name, None)
    return "", None


@cache
def _nodes(scenario: Callable[..., object]) -> Sequence[ast.AST]:
    """Return the syntax nodes of a scenario, then those of each function of its file that it calls."""
    functions = _functions(_file_of(scenario))
    visited, pending = set[str](), [inspect.unwrap(scenario).__name__]
    nodes: list[ast.AST] = []
    while pending:
        name = pending.pop(0)
        if name in functions and name not in visited:
            visited.add(name)
            inner = list(ast.walk(functions[name]))
            nodes += inner
            pending += [node.id for node in inner if isinstance(node, ast.Name)]
    return nodes


@cache
def _functions(path: Path) -> Mapping[str, ast.FunctionDef]:
    """Return the functions at the top of a file, by name."""
    module = ast.parse(path.read_text(), str(path))
    return {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}


def _file_of(scenario: Callable[..., object]) -> Path:
    return Path(inspect.getfile(inspect.unwrap(scenario)))


def declared(item: pytest.Item) -> tuple[str, ...]:
    """Return the claims that a scenario declares."""
    marker = item.get_closest_marker("claims")
    return tuple(str(claim) for claim in marker.args) if marker else ()


def warn_of_deprecated(item: pytest.Item) -> None:
    """Warn of a scenario whose source has the marker `claims`, or whose arguments include `judge`."""
    expectation = f'{CLAIM_FIXTURE}("page.sentence").expect(...)'
    is_marked = item.stash.get(IS_MARKED, False)
    if is_marked:
        message = f"@claims is deprecated: {expectation} in a scenario also declares its claim"
        item.warn(DeprecationWarning(message))
    if not isinstance(item, pytest.Function) or not (is_marked or CLAIM_FIXTURE in item.fixturenames):
        return
    if "judge" in inspect.signature(item.function).parameters:
        message = f"the fixture `judge` is deprecated: use {expectation}, or expect_later(CHECK)"
        item.warn(DeprecationWarning(message))


def fault_names(item: pytest.Item) -> tuple[str, ...]:
    """Return the fault constructors (`nodeproof.scenario`) in a scenario's source and in its `@standing`."""
    makers: list[object] = [mark.args[0] for mark in item.iter_markers("standing")]
    makers += [word for _name, word in _words_used(item)]
    return tuple(sorted({word_of(maker) for maker in makers} - {""}))


def fault_summary(word: str) -> str:
    """Return what a fault and its healing do."""
    from nodeproof import scenario

    constructor = getattr(scenario, word)
    fault = constructor if isinstance(constructor, type) else get_type_hints(constructor)["return"]
    return " ".join((inspect.getdoc(fault) or "").partition("\n\n")[0].split())


def word_of(constructor: object) -> str:
    """Return the word of a fault's constructor in scenarios, empty if it is none."""
    from nodeproof.faults import FAULTS
    from nodeproof.scenario import faults

    if inspect.isfunction(constructor):
        return constructor.__name__ if constructor.__module__ == faults.__name__ else ""
    return next((fault.word for fault in FAULTS.values() if fault is constructor), "")


def needs(item: pytest.Item) -> Needs:
    """Return what a scenario needs of its lab.

    Raises:
        Problem: The marker is malformed.
    """
    marker = item.get_closest_marker("needs")
    if marker is None:
        return Needs()
    if marker.args:
        raise Problem("@needs takes keyword arguments only", item.nodeid, "write @needs(nodes=2)")
    return Needs.of(marker.kwargs, item.nodeid)


def standing(item: pytest.Item) -> tuple[FaultFactory, ...]:
    """Return the faults to inject on the target before the scenario begins, in source order."""
    marks = reversed(list(item.iter_markers("standing")))
    return tuple(_make(mark.args[0], mark.args[1:], mark.kwargs) for mark in marks)


def _make(
    constructor: Callable[..., Fault], args: Sequence[Any], settings: Mapping[str, Any]
) -> FaultFactory:
    return lambda node: constructor(node, *args, **settings)


def key(makes: Sequence[FaultFactory]) -> str:
    """Return a string that is equal for equal faults, and empty without faults.

    Raises:
        TypeError: A constructor does not accept its arguments.
        ValueError: A constructor does not accept the value of an argument.
    """
    faults = [{**make("").to_json(), "id": ""} for make in makes]
    return json.dumps(faults, sort_keys=True) if faults else ""


def describe_faults(key: str) -> Iterator[str]:
    """Describe each fault of a key, with its arguments except the node."""
    for fault in json.loads(key):
        settings = [
            f"{name}={json.dumps(value)}" for name, value in fault.items() if name not in _COMMON_KEYS
        ]
        yield " ".join([fault["fault"], *settings])


def check(item: pytest.Item) -> None:
    """Check a scenario's markers before the run.

    Raises:
        Problem: No lab has what the scenario needs, its faults could count as a disruption of their zone, or
            `@standing` names something that is not a fault of one node.
    """
    requirements = needs(item)
    try:
        for mark in item.iter_markers("standing"):
            _check_constructor(mark.args[0])
        standing_key = key(standing(item))
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        raise Problem(f"@standing: {error}", item.nodeid, "write, e.g., @standing(swap, 256)") from error
    if standing_key and not requirements.faulted:
        raise Problem("@standing affects a node", item.nodeid, "declare it: @needs(faulted=1)")
    if requirements.faulted > MAX_LOST and not requirements.radius:
        raise Problem(
            f"faults on {requirements.faulted} nodes may count as a disruption of their zone", item.nodeid,
            f'declare at most {MAX_LOST}, or radius="zone"',

        )  # fmt: skip


def _check_constructor(constructor: Callable[..., Fault]) -> None:
    """Check that a callable makes a fault, and takes its node first. Raises TypeError, ValueError."""
    word = word_of(constructor)
    if not word:
        raise TypeError(f"{constructor.__name__} is not a fault of nodeproof.scenario")
    if next(iter(inspect.signature(constructor).parameters), "") not in ("node", "target"):
        raise TypeError(f"{word} is not a fault of a single node")


def why_unprovable(item: pytest.Item, options: Options) -> tuple[Code, str] | None:
    """Return why this scenario can't prove anything here (code and reason), or None if it can."""
    profile = needs(item).profile
    if profile and profile != options.profile:
        return "scaled", f"it proves something in profile {profile} only, this is {options.profile}"
    missing = next(filter(None, (_lacks(item, options), _lacks_size(needs(item), options))), "")
    return ("lab-lacks", missing) if missing else None


def _lacks_size(needs: Needs, options: Options) -> str:
    """Return what the lab of these options lacks in nodes and zones, or an empty string."""
    lab, most_nodes = size(needs, options), options.lab_kind.limits.nodes
    if options.zone and needs.is_alone:
        return "it needs a lab to itself: leave the zone out, and -n"
    if lab.nodes > most_nodes:
        return f"it needs {lab.nodes} nodes, a {options.kind} lab has at most {most_nodes}"
    if needs.spread != lab.spread:
        sizes = ", ".join(map(str, needs.spread))
        return f"it needs zones of {sizes} nodes: leave out --nodes, --zones and the lab's name"
    if needs.zones > lab.zones:
        return f"it needs {needs.zones} zones, the lab has {lab.zones}: use --zones"
    if needs.faulted and not needs.radius and lab.nodes < 2 * lab.zones:
        return "a zone of one node would lose its only one: use --nodes"
    if needs.nodes > lab.nodes:
        return f"it needs {needs.nodes} nodes, the lab has {lab.nodes}: use --nodes"
    return ""


def _lacks(item: pytest.Item, options: Options) -> str:
    """Return what a lab of this kind and these options lacks for a scenario, or an empty string."""
    kind = options.lab_kind
    missing = lacks_features(item, kind.features)
    if missing:
        if kind.is_attached:
            return f"it needs {missing}, which no scenario uses on somebody's own cluster"
        return f"a {options.kind} lab has no {missing}"
    refused = _refused_by_owner(item, kind.only_faults)
    if refused:
        return f"it uses {refused}, which is not allowed on somebody's own cluster"
    if not options.runs_pods and any(effect_of(word) == "runs-pods" for _, word in _acting_words(item)):
        return "it runs pods: name their image in the inventory's key `pods`"
    if "upgrade" in fault_names(item) and not options.overrides.upgrade_to:
        return "it upgrades the control plane: use --upgrade-to"
    control_planes = needs(item).control_planes
    if control_planes > options.overrides.control_planes:
        return f"it needs {control_planes} control planes: use --control-planes"
    return ""


def _refused_by_owner(item: pytest.Item, only_faults: Mapping[str, Set[str]] | None) -> str:
    """Return what a scenario uses that the owner of a cluster does not allow, as text; empty in a lab."""
    if only_faults is None or not isinstance(item, pytest.Function):
        return ""
    requirements = needs(item)
    used = ["@standing"] if item.get_closest_marker("standing") else []
    used += [name for name in fault_names(item) if name not in only_faults]
    used += [
        f"{word} with {argument}"
        for word, argument in _arguments_of_faults(item.function)
        if argument not in only_faults.get(word, {argument})
    ]
    used += requirements.components
    if requirements.radius:
        used.append(f'radius="{requirements.radius}"')
    used += [name for name, word in _acting_words(item) if effect_of(word) is None]
    return ", ".join(dict.fromkeys(used))


def _arguments_of_faults(scenario: Callable[..., object]) -> Iterator[tuple[str, str]]:
    """Yield the words of faults that a scenario uses, each with an argument after the first one."""
    names = inspect.unwrap(scenario).__globals__
    for call in (node for node in _nodes(scenario) if isinstance(node, ast.Call)):
        _name, maker = _resolve(call.func, names)
        if callable(maker) and (word := word_of(maker)):
            arguments = [*inspect.signature(maker).parameters][1 : len(call.args)]
            for argument in [*arguments, *(keyword.arg for keyword in call.keywords)]:
                yield word, str(argument)


def _acting_words(item: pytest.Item) -> Iterator[tuple[str, object]]:
    """Yield the actions, probes and sources that a scenario uses, by their names in its source."""
    for name, word in _words_used(item):
        module, dot, _name = name.partition(".")
        if not dot:
            module = str(getattr(word, "__module__", "")).removeprefix("nodeproof.")
        if module in _ACTING and not isinstance(word, str):
            yield name, word


def is_large(needs: Needs, options: Options) -> bool:
    """Return whether a scenario needs a lab larger than the common one of this kind."""
    return needs.zones > 1 or needs.nodes > options.lab_kind.limits.common_nodes


def size(needs: Needs, options: Options) -> Size:
    """Return the size of the lab for a scenario; `--nodes` and `--zones` override it."""
    if needs.spread and (needs.spread == options.spread or not (options.nodes or options.zones)):
        return Size(needs.nodes, needs.zones, needs.spread)
    zones = options.zones or needs.zones
    return Size(options.nodes or max(needs.nodes, 2 * zones), zones)


def common_size(all_needs: Iterable[Needs], options: Options) -> Size:
    """Return the lab size that suits every scenario without a lab size of its own."""
    sizes = [size(needs, options) for needs in all_needs if not is_large(needs, options) or options.nodes]
    zones = options.zones or 1
    return Size(max((size.nodes for size in sizes), default=2 * zones), zones)


def needs_machine(item: pytest.Item) -> bool:
    """Return whether a scenario needs a feature that hollow nodes lack; `check` reports malformed markers."""
    if not declared(item):
        return False
    from nodeproof.labs.kinds import KINDS

    hollow_features = frozenset[str]().union(*(kind.features for kind in KINDS.values() if kind.is_hollow))
    with contextlib.suppress(Problem):
        return bool(lacks_features(item, hollow_features))
    return False


def concerns_skew(item: pytest.Item) -> bool:
    """Return whether a scenario judges a claim that must also hold with an older kubelet."""
    return any(claim.partition(".")[0] in SKEWED_AREAS for claim in declared(item))


def lacks_features(item: pytest.Item, has: frozenset[str]) -> str:
    """Return the features that the scenario needs and the lab lacks, as text; empty if none."""
    return ", ".join(sorted(needs(item).features - has))
