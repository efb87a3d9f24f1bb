"""Formulas of windows, such as `max(P, 1/E) + 1 + slack`, and the component fields that symbols stand for."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nodeproof.model.pattern import Json
from nodeproof.model.quantity import duration_s

Lookup = Callable[[str], float]
_PRODUCT = re.compile(r"(?<![A-Za-z_0-9.])([0-9]+(?:\.[0-9]+)?)([A-Za-z_][A-Za-z_0-9]*)")
"""`2P` is two times P, also in a denominator."""
_LENGTH_LIMIT = 200
_OPERATORS: Mapping[type, tuple[str, Callable[[float, float], float]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", lambda one, other: one / other if other else float("inf")),
}
_FUNCTIONS: Mapping[str, Callable[[list[float]], float]] = {"max": max, "min": min}


@dataclass(frozen=True)
class Term:
    """A parsed formula; `text` is its source."""

    text: str
    _tree: ast.expr

    @classmethod
    def of(cls, text: str) -> Term:
        """Parse a formula of numbers, symbols, + - * /, max and min.

        Raises:
            ValueError: The text is not a formula.
        """
        if len(text) > _LENGTH_LIMIT:
            raise ValueError(f"a formula of more than {_LENGTH_LIMIT} characters")
        try:
            tree = ast.parse(_PRODUCT.sub(r"(\1*\2)", text), mode="eval").body
        except (SyntaxError, RecursionError) as error:
            raise ValueError(f"not a formula: {text!r}") from error
        _value(tree, lambda _symbol: 1.0)
        return cls(text, tree)

    @property
    def symbols(self) -> frozenset[str]:
        """The names in the formula, in no order."""
        names = {node.id for node in ast.walk(self._tree) if isinstance(node, ast.Name)}
        return frozenset(names - _FUNCTIONS.keys())

    def value(self, lookup: Lookup) -> float:
        """Return the value of the formula.

        Raises:
            KeyError: `lookup` does not know a symbol.
        """
        return _value(self._tree, lookup)

    def arithmetic(self, lookup: Lookup) -> str:
        """Return the formula for output: `G + 2P + slack (12 + 2 + 0.31)`; only sums show their values."""
        is_sum = isinstance(self._tree, ast.BinOp) and self.symbols
        return f"{self.text} ({_numbers(self._tree, lookup)})" if is_sum else self.text


def _value(node: ast.expr, lookup: Lookup) -> float:
    """Return the value of a formula.

    Raises:
        ValueError: It is not arithmetic.
    """
    match node:
        case ast.BinOp(left, op, right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)][1](_value(left, lookup), _value(right, lookup))
        case ast.UnaryOp(ast.USub(), operand):
            return -_value(operand, lookup)
        case ast.Call(ast.Name(name), [_, *_] as arguments, []) if name in _FUNCTIONS:
            return _FUNCTIONS[name]([_value(argument, lookup) for argument in arguments])
        case ast.Name(name) if name not in _FUNCTIONS:
            return lookup(name)
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return float(number)
    raise ValueError(f"not arithmetic: {ast.unparse(node)!r}")


def _numbers(node: ast.expr, lookup: Lookup) -> str:
    """Return a sum with its values; products and functions become one number."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign = _OPERATORS[type(node.op)][0]
        return f"{_numbers(node.left, lookup)} {sign} {_numbers(node.right, lookup)}"
    if isinstance(node, ast.UnaryOp):
        return f"-{_numbers(node.operand, lookup)}"
    return f"{round(_value(node, lookup), 3):g}"


@dataclass(frozen=True)
class Symbol:
    """A value of the running configuration: `share` of the value at a path of a component's `/configz`."""

    meaning: str
    component: str
    path: str
    share: float = 1.0


_MANAGER, _NODES = "kube-controller-manager", "NodeLifecycleController"
_ELECTION = "Generic.LeaderElection"
SYMBOLS: Mapping[str, Symbol] = {
    "G": Symbol("node-monitor-grace-period (s)", _MANAGER, f"{_NODES}.NodeMonitorGracePeriod"),
    "P": Symbol("node-monitor-period (s)", _MANAGER, "KubeCloudShared.NodeMonitorPeriod"),
    "E": Symbol("node-eviction-rate (1/s)", _MANAGER, f"{_NODES}.NodeEvictionRate"),
    "E2": Symbol("secondary-node-eviction-rate (1/s)", _MANAGER, f"{_NODES}.SecondaryNodeEvictionRate"),
    # nodeLeaseRenewIntervalFraction is compiled in (pkg/kubelet/kubelet.go).
    "R": Symbol("interval of lease renewals (s)", "kubelet", "nodeLeaseDurationSeconds", 0.25),
    "S": Symbol("node-startup-grace-period (s)", _MANAGER, f"{_NODES}.NodeStartupGracePeriod"),
    "U": Symbol("period in which a kubelet computes its status (s)", "kubelet", "nodeStatusUpdateFrequency"),
    "T": Symbol("default toleration (s)", "kube-apiserver", "DefaultTolerationSeconds.Unreachable"),
    "L": Symbol("leader-elect-lease-duration (s)", _MANAGER, f"{_ELECTION}.LeaseDuration"),
    "D": Symbol("leader-elect-renew-deadline (s)", _MANAGER, f"{_ELECTION}.RenewDeadline"),
    "Y": Symbol("leader-elect-retry-period (s)", _MANAGER, f"{_ELECTION}.RetryPeriod"),
}
SLACK = "slack"
"""Time that measuring may add to a true duration (s); every formula may use it."""


_MOVED: Mapping[str, str] = {
    "KubeCloudShared.NodeMonitorPeriod": "NodeLifecycleController.NodeMonitorPeriod",
    f"{_ELECTION}.LeaseDuration": f"{_ELECTION}.leaseDuration",
    f"{_ELECTION}.RenewDeadline": f"{_ELECTION}.renewDeadline",
    f"{_ELECTION}.RetryPeriod": f"{_ELECTION}.retryPeriod",
}
"""Fields by their path before Kubernetes 1.37, and their path since."""


def read(symbol: Symbol, reported: Mapping[str, Json]) -> float:
    """Return the value of a symbol.

    Raises:
        KeyError: Its component did not report it.
    """
    value = field_at(symbol.path, reported[symbol.component])
    return symbol.share * (0.0 if value is None else duration_s(value))


def field_at(path: str, configz: Json) -> Json:
    """Return the field at a path of a component's `/configz`, or at the path that it has moved to.

    Raises:
        KeyError: The component did not report it.
    """
    for current in dict.fromkeys((path, _MOVED.get(path, path))):
        value = configz
        for part in current.split("."):
            if not isinstance(value, Mapping) or part not in value:
                break
            value = value[part]
        else:
            return value
    raise KeyError(path)
