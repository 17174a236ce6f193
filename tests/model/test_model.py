"""The model of the protocol, its quick configurations; and that the code's steps are the model's.

The whole table, about 7 minutes:  make model
"""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from streamwork.epoch import Phase

MODEL = Path(__file__).with_name("epoch_protocol.py")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("epoch_protocol", MODEL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


model = load()


@pytest.mark.parametrize(
    "scenario", ["crash twice", "task retried", "timeout", "torn manifest", "sink lost a commit", "fallback, random"]
)
def test_the_protocol_holds(scenario: str) -> None:
    worlds, settled, _, problem, trace = model.explore(model.Rules(), *model.SCENARIOS[scenario])
    assert problem is None, trace
    assert worlds > 1_000 and settled > 10, "it must get somewhere for this to prove anything"


@pytest.mark.parametrize(
    ("change", "scenario"),
    [
        ("a prepared epoch may be abandoned", "timeout"),
        ("cap recorded before the roll forward", "crash twice"),
        ("a torn manifest's twin is not used", "torn manifest"),
        ("key writes without a begin mark", "sink lost a commit"),
        ("no manifest zero", "crash twice"),
        ("no ledger", "crash twice"),
        ("ledger keyed by fence", "crash twice"),
        ("no prepared manifest", "crash twice"),
        ("never roll forward", "crash twice"),
        ("attempts need not agree", "task retried"),
        ("nothing re-applied to a sink behind", "sink lost a commit"),
    ],
)
def test_without_a_rule_it_does_not(change: str, scenario: str) -> None:
    rules = next(rules for _, name, rules in model.ABLATIONS if name == change)
    assert model.explore(rules, *model.SCENARIOS[scenario])[3] is not None


def test_the_code_takes_the_steps_of_the_model() -> None:
    """What a sink does within a commit (key by key, then its row) is not the driver's; plan and abandon are moves of the model."""
    jobs = set(re.findall(r'job == "(\w+)"', MODEL.read_text()))
    assert jobs - {"key", "row"} | {"plan", "abandon"} == {step.value for step in Phase}
