"""`Summary`: the result of a demo, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from streamwork.cli.network.incident import Incident
from streamwork.cli.network.reading import Snapshot
from streamwork.cli.network.schedule import Job
from streamwork.cli.network.state import LIMIT_MS, clock, milliseconds
from streamwork.cli.network.verdict import Fraud, Usage, Verdict
from streamwork.wording import plural


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of the sender's report that the summary needs."""

    rate: float
    latency: dict[str, Any]
    answers: dict[str, int]
    missing_scores: dict[str, int]
    longest_gap_ms: float | None = None


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    at_seconds: float
    victim: str
    killed: str
    recovered_seconds: float | None
    counted: int | None = None
    repeated: int | None = None


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    right: bool
    problems: list[str]
    seed: int
    rate: float
    sent: int
    answers: dict[str, int]
    latency: dict[str, Any]  # of the last sender
    missing_scores: dict[str, int]
    fraud: Fraud
    usage: Usage
    checkpoints: dict[str, int]
    faults: list[Fault]
    cores: int
    load: float  # of the machine, over the last minute


def summarise(
    seed: int,
    verdict: Verdict,
    reports: Sequence[Report],
    incidents: Sequence[Incident],
    last: Snapshot,
    machine: tuple[int, float],
) -> Summary:
    """`machine` is its cores, and its load."""
    answers: Counter[str] = sum((Counter(one.answers) for one in reports), Counter())
    missing: Counter[str] = sum((Counter(one.missing_scores) for one in reports), Counter())
    sent = sum(one.latency.get("transactions", 0) for one in reports)
    problems = [*verdict.problems]
    if answers.total() != sent:
        problems.append(f"{answers.total():,} of {plural(sent, 'transaction')} were answered")
    for one in incidents:
        if one.recovered is None:
            problems.append(f"{one.victim.job.value} has not recovered from kill -9 of {one.what}")
        elif one.repeated:
            problems.append(f"after kill -9 of {one.what}, {plural(one.repeated, 'row')} of system usage were repeated")
    return Summary(
        right=not problems,
        problems=problems,
        seed=seed,
        rate=reports[-1].rate,
        sent=sent,
        answers={name: answers[name] for name in reports[-1].answers},
        latency=reports[-1].latency,
        missing_scores=dict(missing),
        fraud=verdict.fraud,
        usage=verdict.usage,
        checkpoints={job.value: last.job(job).checkpoint for job in Job},
        faults=[
            Fault(
                at_seconds=one.traffic,
                victim=one.victim.value,
                killed=one.what,
                recovered_seconds=one.recovered,
                counted=one.counted if one.repeated is not None else None,
                repeated=one.repeated,
            )
            for one in incidents
        ],
        cores=machine[0],
        load=round(machine[1], 1),
    )


def summary_lines(summary: Summary) -> list[str]:
    usage, fraud, latency = summary.usage, summary.fraud, summary.latency
    share = latency.get("share_within")
    lines = [
        "",
        f"fraud detection (live, at-most-once), checkpoint {summary.checkpoints[Job.FRAUD.value]}",
        f"  {plural(summary.sent, 'transaction')} sent, {summary.rate:g} per second; answers: "
        + ", ".join(f"{name} {number:,}" for name, number in summary.answers.items()),
        f"  latency p50 {milliseconds(latency.get('p50_ms'))} ms, p99 {milliseconds(latency.get('p99_ms'))} ms, "
        f"{'-' if share is None else f'{share:.1%}'} within {LIMIT_MS:g} ms (faults included; "
        f"{plural(summary.cores, 'core')} with a load of {summary.load:g})",
        f"  {fraud.caught:,} of {fraud.planted:,} planted frauds caught, {plural(fraud.false_alarms, 'false alarm')}",
        "  decisions without the score of: "
        + (", ".join(f"{name} {number:,}" for name, number in summary.missing_scores.items()) or "none"),
        f"system usage (microbatch, exactly-once), checkpoint {summary.checkpoints[Job.USAGE.value]}",
        f"  {usage.counted:,} counted, {usage.logged:,} in the log: {usage.missing:,} missing, {usage.repeated:,} repeated",
        f"  {usage.fraudulent:,} judged fraudulent, {usage.store_fraudulent:,} in the result store; "
        f"{usage.unknown:,} without a verdict when they were counted, {usage.decided_later:,} of them decided later",
        "faults" if summary.faults else "no faults",
    ]
    for one in summary.faults:
        back = "NOT RECOVERED" if one.recovered_seconds is None else f"back after {one.recovered_seconds:.1f} s"
        counted = "" if one.counted is None else f", {one.counted:,} counted, {one.repeated:,} repeated"
        lines.append(f"  {clock(one.at_seconds)}  kill -9 {one.killed}: {back}{counted}")
    return [*lines, *([f"WRONG: {problem}" for problem in summary.problems] or ["every total is right"])]
