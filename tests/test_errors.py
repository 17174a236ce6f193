"""What an error says of itself: whether a restart may help, and whether it is about one event or about the set-up.

The table below holds, for each code that differs from the default of its class, what its raise sites must say. The checker reads
the source; the negative control shows that it finds a raise site that says something else.
"""

from __future__ import annotations

import ast
import copy
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamwork.engine.report import Failure, Reports
from streamwork.errors import JobFailed, Refused, StreamworkError, WrongUse

SOURCE = Path(__file__).parents[1] / "src" / "streamwork"

LASTING = {"retryable"}
OF_ONE_EVENT = {"retryable", "about_one_event"}
OF_THE_SETUP = {"about_setup"}

TRAITS = {
    "SW-ENGINE-FAILED": LASTING,
    "SW-INBOX-EVENT": LASTING,
    "SW-INTERNAL": LASTING,
    "SW-JAVA-MISSING": OF_THE_SETUP,
    "SW-KAFKA-DENIED": OF_THE_SETUP,
    "SW-KAFKA-REGISTRY": OF_THE_SETUP,
    "SW-KAFKA-TOPIC": OF_THE_SETUP,
    "SW-KAFKA-UNREACHABLE": OF_THE_SETUP,
    "SW-KEY-MOVED": LASTING,
    "SW-MANUAL-ORDER": LASTING,
    "SW-OPERATOR-COPY": LASTING,
    "SW-OPERATOR-FAILED": OF_ONE_EVENT,
    "SW-SINK-REJECTED": OF_ONE_EVENT,
    "SW-SOURCE-BAD-EVENT": OF_ONE_EVENT,
    "SW-SOURCE-HEADER": LASTING,
    "SW-SOURCE-MISSING": OF_THE_SETUP,
    "SW-SOURCE-SCHEMA": LASTING,
    "SW-SPARK-UNREACHABLE": OF_THE_SETUP,
    "SW-STATE-MIGRATE": LASTING,
    "SW-STATE-RESCALE": LASTING,
    "SW-TIME-AHEAD": OF_ONE_EVENT,
    "SW-TYPE-EVENT": OF_ONE_EVENT,
    "SW-TYPE-VALUE": OF_ONE_EVENT,
    "SW-WINDOW-ASSIGNER": OF_ONE_EVENT,
    "SW-WINDOW-OVERFLOW": OF_ONE_EVENT,
    "SW-WINDOW-RANGE": OF_ONE_EVENT,
    "SW-WINDOW-VALUE": OF_ONE_EVENT,
}
"""Code -> the attributes that are not those of its class."""

COMPUTED = {
    "SW-ENGINE-FAILED": {"retryable": "is_retryable(error)"},
    "SW-INTERNAL": {"retryable": "is_retryable(error)"},
    "SW-OPERATOR-FAILED": {"retryable": "is_retryable(error)", "about_one_event": "about_one_event"},
    "SW-IO-FAILED": {"about_setup": "is_lasting(error)"},
    "SW-KAFKA-UNREACHABLE": {"about_setup": "self.servers not in _answered"},
}
"""Code -> attribute -> the expression that decides, where the exception behind the error does."""

CONSTANT = {"retryable": "False", "about_one_event": "True", "about_setup": "True"}
KINDS = ("JobFailed", "WrongUse", "Refused")


def faults(source: str) -> Iterator[str]:
    """The raise sites of a module that differ from the tables."""
    for call in ast.walk(ast.parse(source)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in KINDS):
            continue
        if not (call.args and isinstance(call.args[0], ast.Constant)):
            continue
        code = call.args[0].value
        said = {one.arg: ast.unparse(one.value) for one in call.keywords if one.arg in CONSTANT}
        wanted = {name: COMPUTED.get(code, {}).get(name, CONSTANT[name]) for name in TRAITS.get(code, ())}
        allowed = [wanted, {**wanted, **COMPUTED.get(code, {})}]
        if said not in allowed:
            yield f"{code}, line {call.lineno}: says {said}, not {wanted}"


def codes_in_a_row(source: str) -> Iterator[str]:
    """Collections of codes: a decision about errors that stands apart from them."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Set | ast.List | ast.Tuple):
            held = [one.value for one in node.elts if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if len([one for one in held if one.startswith("SW-")]) > 1:
                yield f"line {node.lineno}: {held}"


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_every_raise_site_says_what_is_known_of_its_code() -> None:
    assert {path.name: found for path in modules() if (found := list(faults(path.read_text())))} == {}


def test_no_module_keeps_a_collection_of_codes() -> None:
    assert {path.name: found for path in modules() if (found := list(codes_in_a_row(path.read_text())))} == {}


def test_the_checkers_find_what_is_wrong() -> None:
    assert list(faults('raise JobFailed("SW-TYPE-EVENT", "", "")'))
    assert list(faults('raise JobFailed("SW-TYPE-EVENT", "", "", retryable=False)'))
    assert list(faults('raise JobFailed("SW-LOG-FULL", "", "", retryable=False)'))
    assert list(faults('raise JobFailed("SW-SOURCE-MISSING", "", "")'))
    assert not list(faults('raise JobFailed("SW-TYPE-EVENT", "", "", retryable=False, about_one_event=True)'))
    assert list(codes_in_a_row('FATAL = frozenset({"SW-LOG-FULL", "SW-LOG-IO"})'))
    assert list(codes_in_a_row('error.code in ("SW-LOG-FULL", "SW-LOG-IO")'))


def test_the_class_decides_where_the_raise_site_does_not() -> None:
    assert [kind("SW-X", "cause", "action").retryable for kind in (JobFailed, WrongUse, Refused)] == [
        True,
        False,
        False,
    ]
    error = JobFailed("SW-X", "cause", "action")
    assert (error.about_one_event, error.about_setup, error.component) == (False, False, "")


@pytest.mark.parametrize("kind", [JobFailed, WrongUse, Refused])
@pytest.mark.parametrize("said", [{}, {"retryable": False}, {"about_one_event": True}, {"about_setup": True}])
def test_what_an_error_says_of_itself_travels_with_it(kind: type[StreamworkError], said: dict[str, bool]) -> None:
    error = kind("SW-X", "cause", "action", component="per-card", **said)
    error.cause += ", while applying"
    sent = Reports.from_json(Reports(failure=Failure.of(error)).to_json()).failure
    assert sent is not None
    for arrived in (pickle.loads(pickle.dumps(error)), copy.copy(error), sent.to_error()):
        assert type(arrived) is kind
        assert vars(arrived) == vars(error)
        assert str(arrived) == str(error)
