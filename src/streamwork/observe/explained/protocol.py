"""The steps of an epoch in words. They are those of the docstring of `epoch.driver`; a test compares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from streamwork.epoch import Phase
from streamwork.epoch.recovery.next_start import Action, EpochFacts, Kill, NextStart
from streamwork.job.semantics import Semantics


class Words(NamedTuple):
    """What a step does, and what is durable when it is done."""

    number: str
    does: str
    durable: str


STEPS: Mapping[Phase, Words] = {
    Phase.PLAN: Words(
        "1",
        "The driver writes down which slice of the input this epoch reads, before anything is computed.",
        "The plan. The number of the epoch is used up.",
    ),
    Phase.COMPUTE: Words(
        "2",
        "Each instance takes the state of the parent checkpoint, processes its slice, and writes its changed records and its "
        "outputs for the sinks. The names of the files hold the epoch, the fence and a random attempt.",
        "Files that no manifest names. They count for nothing yet, and no sink has a row.",
    ),
    Phase.REPORT: Words(
        "3",
        "Each instance reports the names and hashes of its files and what it counted. The driver checks that every instance has "
        "reported, and that all reports belong to the same attempts.",
        "Nothing new: the reports are in the memory of the driver.",
    ),
    Phase.PREPARE: Words(
        "4",
        "The driver writes the manifest as prepared: positions, files, hashes, counters. This is the point of no return.",
        "The prepared manifest. From here on the epoch is only rolled forward, never computed again.",
    ),
    Phase.COMMIT: Words(
        "5",
        "Each sink, one after the other, applies the staged rows and moves its ledger row to the end of the slice, in one "
        "transaction of its own.",
        "In each sink that has committed: the rows, and a ledger row that names this manifest.",
    ),
    Phase.COMPLETE: Words(
        "6",
        "The driver writes the same manifest, byte for byte, under its final name.",
        "The completed manifest. The checkpoint is the newest one.",
    ),
    Phase.PRUNE: Words(
        ".",
        "The driver removes what no kept checkpoint needs.",
        "The kept checkpoints, and all files that they name.",
    ),
}
AT_ONCE = {
    Phase.COMPUTE: (
        "Each instance takes the state of the parent checkpoint, processes its slice, writes its changed records to files and its "
        "outputs to the sinks, at once.",
        "Rows in the sinks, and state files that no manifest names.",
    ),
    Phase.COMMIT: (
        "Nothing to commit: under {semantics} the instances have written to the sinks in step 2.",
        "Nothing new.",
    ),
}


def words(phase: Phase, semantics: Semantics) -> Words:
    """The words of a step under these semantics."""
    if semantics is Semantics.EXACTLY_ONCE or phase not in AT_ONCE:
        return STEPS[phase]
    does, durable = AT_ONCE[phase]
    return Words(STEPS[phase].number, does.format(semantics=semantics.value), durable)


def killed(kill: Kill, facts: EpochFacts) -> str:
    """Where a kill strikes: ``after 4 prepare``."""
    number = STEPS[kill.after].number
    if kill.after in (Phase.COMPUTE, Phase.REPORT):
        place = "during" if kill.after is Phase.COMPUTE else "after"
        return f"{place} {number} {kill.after.value}"
    if kill.after is Phase.COMMIT:
        if len(kill.committed) < len(facts.sinks):
            return f"during {number} commit, {_names(kill.committed)} {_have(kill.committed)} committed"
        return f"after {number} commit"
    return f"after {number} {kill.after.value}" if kill.after is not Phase.PRUNE else "during or after prune"


def left(kill: Kill, facts: EpochFacts) -> str:
    """What a kill leaves behind."""
    if kill.after is Phase.PLAN:
        return "a plan without a manifest"
    if kill.after in (Phase.COMPUTE, Phase.REPORT):
        rows = "" if facts.promise.exactly_once else ", and rows in the sinks"
        return f"files that no manifest names{rows}"
    if kill.after is Phase.PREPARE:
        return "a prepared manifest" + ("; no sink has its rows" if facts.sinks and facts.promise.exactly_once else "")
    if kill.after is Phase.COMMIT:
        missing = [name for name in facts.sinks if name not in kill.committed]
        rest = f", {_names(missing)} not" if missing else ""
        return f"a prepared manifest; {_names(kill.committed)} {_have(kill.committed)} its rows{rest}"
    return "a completed manifest" + ("; perhaps files that no manifest names" if kill.after is Phase.PRUNE else "")


def does(start: NextStart, facts: EpochFacts) -> str:
    """What the next start does, in words."""
    number = facts.plan.epoch
    if start.action is Action.GO_ON:
        return f"It resumes at checkpoint {number}. There is nothing to do but to prune."
    if start.action is Action.ROLL_FORWARD:
        return f"It rolls checkpoint {number} forward: {_forward(start)}. Nothing is computed again."
    spent = f"It resumes at checkpoint {start.resumes_at}. Number {number} is never used again"
    if start.action is Action.LEAVE_OUT:
        return f"{spent}; what was planned is not read again, so the job goes on at {start.reads_from}."
    again = "" if facts.promise.exactly_once else " Rows that were written already are written again."
    return f"{spent}; its next epoch reads the same input, from {start.reads_from}.{again}"


def _forward(start: NextStart) -> str:
    parts = []
    if start.offered:
        parts.append(f"{_names(start.offered)} {'get' if len(start.offered) > 1 else 'gets'} the staged outputs")
    if start.held:
        proof = "their ledgers show" if len(start.held) > 1 else "its ledger shows"
        parts.append(f"{_names(start.held)} {_have(start.held)} them already, as {proof}")
    return ", ".join([*parts, "and it completes the manifest"]) if parts else "it completes the manifest"


def _have(names: tuple[str, ...]) -> str:
    return "have" if len(names) > 1 else "has"


def _names(names: tuple[str, ...] | list[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
