"""A part of PromQL, for tests of the dashboard and of the alert rules: parsed, checked against metrics, and evaluated.

It has selectors, ranges, `rate`, `increase`, `delta`, `histogram_quantile`, `time`, aggregations with `by`, arithmetic, comparisons
and set operators with `on`. Anything else is an error: an expression that this does not know is not tested. `increase` and `rate`
are those of the first and the last value in the range, without extrapolation to its ends; a counter that falls has started again.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

Labels = frozenset[tuple[str, str]]
Vector = dict[Labels, float]
NAME = "__name__"

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?(?![\dsmhd]))|(?P<range>\[\d+[smhd]\])|(?P<word>[a-zA-Z_][a-zA-Z0-9_]*)"
    r'|(?P<text>"[^"]*")|(?P<sign>==|!=|=~|!~|>=|<=|[-+*/(){},=<>]))'
)
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
AGGREGATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "sum": sum,
    "max": max,
    "min": min,
    "avg": lambda values: sum(values) / len(values),
    "count": len,
}
RANGED = ("rate", "increase", "delta")
ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": lambda a, b: a / b if b else (math.nan if a == 0 or math.isnan(a) else math.copysign(math.inf, a)),
}
COMPARISONS = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
SETS = ("and", "unless", "or")
LEVELS = (("or",), ("and", "unless"), tuple(COMPARISONS), ("+", "-"), ("*", "/"))


class Unknown(ValueError):
    """This is not PromQL, or not the part of it that is known here."""


@dataclass(frozen=True)
class Number:
    value: float


@dataclass(frozen=True)
class Selector:
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    seconds: int | None = None


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Aggregation:
    function: str
    by: tuple[str, ...]
    of: Expression


@dataclass(frozen=True)
class Binary:
    sign: str
    left: Expression
    right: Expression
    on: tuple[str, ...] | None


Expression = Number | Selector | Call | Aggregation | Binary


# ---- parsing --------------------------------------------------------------------------------------------------------


def parse(text: str) -> Expression:
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, text = 0, text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            if found is None or found.lastgroup is None:
                raise Unknown(f"{text!r} at {text[at:]!r}")
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._text, self._at = text, 0

    def whole(self) -> Expression:
        found = self._binary(0)
        if self._at < len(self._tokens):
            raise Unknown(f"{self._text!r}: {self._tokens[self._at][1]!r} is left over")
        return found

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self, wanted: str | None = None) -> str:
        kind, text = self._peek()
        if kind == "end" or (wanted is not None and text != wanted):
            raise Unknown(f"{self._text!r}: {wanted!r} expected, not {text!r}")
        self._at += 1
        return text

    def _binary(self, level: int) -> Expression:
        if level == len(LEVELS):
            return self._one()
        left = self._binary(level + 1)
        while self._peek()[1] in LEVELS[level] and self._peek()[0] != "text":
            sign = self._next()
            on = None
            if self._peek()[1] == "on":
                self._next()
                on = self._names()
            left = Binary(sign, left, self._binary(level + 1), on)
        return left

    def _names(self) -> tuple[str, ...]:
        self._next("(")
        names = []
        while self._peek()[1] != ")":
            names.append(self._next())
            if self._peek()[1] == ",":
                self._next()
        self._next(")")
        return tuple(names)

    def _one(self) -> Expression:
        kind, text = self._peek()
        if kind == "number":
            return Number(float(self._next()))
        if text == "(":
            self._next()
            found = self._binary(0)
            self._next(")")
            return found
        if kind != "word":
            raise Unknown(f"{self._text!r}: {text!r} is not known here")
        self._next()
        if text in AGGREGATIONS:
            by: tuple[str, ...] = ()
            if self._peek()[1] == "by":
                self._next()
                by = self._names()
            return Aggregation(text, by, *self._arguments())
        if self._peek()[1] == "(":
            if text not in (*RANGED, "time", "histogram_quantile"):
                raise Unknown(f"{self._text!r}: function {text} is not known here")
            return Call(text, tuple(self._arguments()))
        return self._selector(text)

    def _arguments(self) -> list[Expression]:
        self._next("(")
        found: list[Expression] = []
        while self._peek()[1] != ")":
            found.append(self._binary(0))
            if self._peek()[1] == ",":
                self._next()
        self._next(")")
        return found

    def _selector(self, metric: str) -> Selector:
        matchers = []
        if self._peek()[1] == "{":
            self._next()
            while self._peek()[1] != "}":
                label, sign, (kind, text) = self._next(), self._next(), self._peek()
                if sign not in ("=", "!=", "=~", "!~") or kind != "text":
                    raise Unknown(f"{self._text!r}: {label}{sign}{text}")
                matchers.append((label, sign, self._next()[1:-1]))
                if self._peek()[1] == ",":
                    self._next()
            self._next("}")
        seconds = None
        if self._peek()[0] == "range":
            text = self._next()
            seconds = int(text[1:-2]) * SECONDS[text[-2]]
        return Selector(metric, tuple(matchers), seconds)


# ---- checking -------------------------------------------------------------------------------------------------------


def problems(expression: Expression, known: Mapping[str, frozenset[str]]) -> Iterator[str]:
    """What is wrong with it; `known` are the metrics with their labels."""
    match expression:
        case Selector(metric, matchers, _):
            if metric not in known:
                yield f"{metric} is no metric"
                return
            for label, _, _ in matchers:
                if label not in known[metric]:
                    yield f"{metric} has no label {label}"
        case Call(function, arguments):
            if function in RANGED and not (isinstance(arguments[0], Selector) and arguments[0].seconds):
                yield f"{function} needs a range"
            if function in ("rate", "increase") and isinstance(arguments[0], Selector):
                metric = arguments[0].metric
                if not metric.endswith(("_total", "_bucket", "_sum", "_count")):
                    yield f"{function} of {metric}, which is no counter"
            for one in arguments:
                yield from problems(one, known)
        case Aggregation(_, by, of):
            yield from problems(of, known)
            yield from (f"no label {label} to aggregate by" for label in by if label not in labels(of, known))
        case Binary(_, left, right, on):
            yield from problems(left, known)
            yield from problems(right, known)
            for label in on or ():
                if not {label} <= labels(left, known) & labels(right, known):
                    yield f"no label {label} on both sides"


def labels(expression: Expression, known: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The labels that its result has."""
    match expression:
        case Selector(metric, _, _):
            return known.get(metric, frozenset())
        case Call("histogram_quantile", (_, of)):
            return labels(of, known) - {"le"}
        case Call(_, arguments):
            return labels(arguments[0], known) if arguments else frozenset()
        case Aggregation(_, by, _):
            return frozenset(by)
        case Binary(_, left, right, _):
            return labels(right if isinstance(left, Number | Call) and not labels(left, known) else left, known)
    return frozenset()


# ---- evaluating -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scrape:
    """What was read at one time: metric -> its series."""

    at: float
    series: Mapping[str, Vector]


def evaluate(expression: Expression, scrapes: Sequence[Scrape]) -> Vector | float:
    """Its value at the last scrape."""
    match expression:
        case Number(value):
            return value
        case Selector(metric, matchers, _):
            return _selected(scrapes[-1], metric, matchers)
        case Call("time", ()):
            return scrapes[-1].at
        case Call("histogram_quantile", (Number(share), of)):
            found = evaluate(of, scrapes)
            assert isinstance(found, dict)
            return _quantile(share, found)
        case Call(function, (Selector(metric, matchers, seconds),)) if seconds is not None:
            window = [one for one in scrapes if one.at >= scrapes[-1].at - seconds]
            return _ranged(function, window, metric, matchers)
        case Aggregation(function, by, of):
            found = evaluate(of, scrapes)
            assert isinstance(found, dict)
            groups: dict[Labels, list[float]] = {}
            for mine, value in found.items():
                groups.setdefault(_only(mine, by), []).append(value)
            return {mine: AGGREGATIONS[function](values) for mine, values in groups.items()}
        case Binary(sign, left, right, on):
            return _binary(sign, evaluate(left, scrapes), evaluate(right, scrapes), on)
    raise Unknown(repr(expression))


def _only(mine: Labels, names: Sequence[str]) -> Labels:
    return frozenset((name, value) for name, value in mine if name in names)


def _selected(scrape: Scrape, metric: str, matchers: Sequence[tuple[str, str, str]]) -> Vector:
    def fits(mine: Labels) -> bool:
        values = dict(mine)
        return all(
            (
                re.fullmatch(wanted, values.get(label, "")) is not None
                if "~" in sign
                else values.get(label, "") == wanted
            )
            is not sign.startswith("!")
            for label, sign, wanted in matchers
        )

    return {mine: value for mine, value in scrape.series.get(metric, {}).items() if fits(mine)}


def _ranged(function: str, window: Sequence[Scrape], metric: str, matchers: Sequence[tuple[str, str, str]]) -> Vector:
    values: dict[Labels, list[tuple[float, float]]] = {}
    for scrape in window:
        for mine, value in _selected(scrape, metric, matchers).items():
            values.setdefault(mine, []).append((scrape.at, value))
    found: Vector = {}
    for mine, points in values.items():
        if len(points) < 2:
            continue
        if function == "delta":
            found[mine] = points[-1][1] - points[0][1]
            continue
        grown = sum(after - before if after >= before else after for (_, before), (_, after) in pairwise(points))
        found[mine] = grown if function == "increase" else grown / (points[-1][0] - points[0][0])
    return found


def _quantile(share: float, buckets: Vector) -> Vector:
    series: dict[Labels, list[tuple[float, float]]] = {}
    for mine, value in buckets.items():
        bound = float(dict(mine)["le"])
        series.setdefault(frozenset(one for one in mine if one[0] != "le"), []).append((bound, value))
    found: Vector = {}
    for mine, points in series.items():
        points.sort()
        whole = points[-1][1]
        low, below = 0.0, 0.0
        for bound, count in points:
            if count >= share * whole and whole > 0:
                inside = count - below
                part = (share * whole - below) / inside if inside else 0.0
                found[mine] = low if math.isinf(bound) else low + (bound - low) * part
                break
            low, below = bound, count
        else:
            found[mine] = math.nan
    return found


def _binary(sign: str, left: Vector | float, right: Vector | float, on: tuple[str, ...] | None) -> Vector | float:
    def key(mine: Labels) -> Labels:
        return mine if on is None else _only(mine, on)

    if isinstance(left, float) and isinstance(right, float):
        return ARITHMETIC[sign](left, right) if sign in ARITHMETIC else float(COMPARISONS[sign](left, right))
    if sign in SETS:
        assert isinstance(left, dict) and isinstance(right, dict)
        there = {key(mine) for mine in right}
        if sign == "or":
            here = {key(mine) for mine in left}
            return left | {mine: value for mine, value in right.items() if key(mine) not in here}
        return {mine: value for mine, value in left.items() if (key(mine) in there) is (sign == "and")}
    pairs: list[tuple[Labels, float, float]] = []
    if isinstance(left, dict) and isinstance(right, dict):
        others = {key(mine): value for mine, value in right.items()}
        assert len(others) == len(right), "several series match: this needs `on` with other labels"
        assert len({key(mine) for mine in left}) == len(left), "several series match: this needs `on` with other labels"
        pairs = [(mine, value, others[key(mine)]) for mine, value in left.items() if key(mine) in others]
    elif isinstance(left, dict):
        assert isinstance(right, float)
        pairs = [(mine, value, right) for mine, value in left.items()]
    else:
        assert isinstance(right, dict)
        pairs = [(mine, left, value) for mine, value in right.items()]
    if sign in ARITHMETIC:
        return {mine: ARITHMETIC[sign](a, b) for mine, a, b in pairs}
    shown = isinstance(left, dict)  # a comparison keeps the value of the vector
    return {mine: (a if shown else b) for mine, a, b in pairs if COMPARISONS[sign](a, b)}
