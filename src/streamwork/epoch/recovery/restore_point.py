"""`RestorePoint`: the manifest that a start builds on, and what it does to the sinks first. Pure: it reads no file.

    1  The newest manifest, completed or only prepared, whose state can be read and to which every sink already is or can be
       brought with the staged outputs that are kept. A prepared one is thereby rolled forward; nothing is computed twice.
    2  If there is none, because some sink is ahead of everything that can be read: the newest completed one that every sink is
       at, can be brought to, or is ahead of. What a sink is ahead by is computed again and not written again. This is right
       only where computing again gives the same result.

Sinks are compared by position, never by number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from streamwork.components import LedgerRow, Position
from streamwork.components.commit_rule import lost, wrong_ledger
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.recovery.catalogue import Catalogue
from streamwork.epoch.recovery.sink_paths import SinkPaths
from streamwork.errors import Refused

Ledgers = Mapping[str, LedgerRow | None]


@dataclass(frozen=True)
class RestorePoint:
    """The manifest to build on, and what to do to the sinks first."""

    at: Manifest
    completed: bool
    offers: tuple[tuple[str, Manifest], ...] = ()  # (sink, manifest), oldest first: the sink is behind
    rebases: tuple[str, ...] = ()  # sinks whose rows are all there, from a manifest that cannot be used
    ahead: tuple[tuple[str, Position], ...] = ()  # sinks that have more than `at`, and where they are
    refills: tuple[str, ...] = ()  # sinks among the offers that were lost, and are filled again
    passed_over: tuple[tuple[int, str], ...] = ()  # newer epochs that cannot be built on, and why


def choose(
    catalogue: Catalogue, paths: SinkPaths, ledgers: Ledgers, not_replayable: Callable[[Manifest, Position], str]
) -> RestorePoint:
    """`not_replayable` says why what a sink is ahead by cannot be computed again with the same result; empty if it can."""
    passed_over = list(catalogue.unreadable)
    for manifest in catalogue.newest_first:
        found = _reach(paths, manifest, ledgers)
        problem = found if isinstance(found, str) else catalogue.problem(manifest)
        if not problem and not isinstance(found, str):
            refills = tuple(sink for sink, row in ledgers.items() if paths.refills(sink, row))
            newer = _newer(manifest, passed_over)
            return RestorePoint(manifest, catalogue.is_completed(manifest), found, refills=refills, passed_over=newer)
        passed_over.append((manifest.epoch, problem))
    first: Refused | None = None
    for manifest in catalogue.newest_first:
        if catalogue.is_completed(manifest) and not catalogue.problem(manifest):
            try:
                return _fall_back(paths, manifest, ledgers, not_replayable, _newer(manifest, passed_over))
            except Refused as refusal:
                first = first or refusal
    raise first or none_good(passed_over)


def _newer(manifest: Manifest, passed_over: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple((epoch, why) for epoch, why in passed_over if epoch > manifest.epoch and why)


def _reach(paths: SinkPaths, manifest: Manifest, ledgers: Ledgers) -> tuple[tuple[str, Manifest], ...] | str:
    """What to offer so that every sink is at `manifest`; or why that cannot be."""
    offers: list[tuple[str, Manifest]] = []
    for sink, row in ledgers.items():
        path = paths.path(manifest, sink, row)
        if path is None:
            return f"sink {sink} is not at it and cannot be brought to it"
        offers += [(sink, one) for one in path]
    return tuple(sorted(offers, key=lambda offer: offer[1].age))


def _fall_back(
    paths: SinkPaths,
    at: Manifest,
    ledgers: Ledgers,
    not_replayable: Callable[[Manifest, Position], str],
    passed_over: tuple[tuple[int, str], ...],
) -> RestorePoint:
    offers: list[tuple[str, Manifest]] = []
    rebases: list[str] = []
    ahead: list[tuple[str, Position]] = []
    for sink, row in ledgers.items():
        path = paths.path(at, sink, row)
        if path is not None:
            offers += [(sink, one) for one in path]
        elif row is None or row.position is None:
            raise (
                lost(sink, at.epoch)
                if row is None
                else wrong_ledger(sink, row, f"checkpoint {at.epoch} was written to it")
            )
        elif not row.position.reaches(at.positions):
            raise wrong_ledger(sink, row, f"checkpoint {at.epoch} is at {at.positions}, and what lies between is gone")
        elif why := not_replayable(at, row.position):
            raise _diverges(sink, at, row.position, why)
        elif row.position == at.positions:
            rebases.append(sink)
        else:
            ahead.append((sink, row.position))
    refills = tuple(sink for sink, row in ledgers.items() if paths.refills(sink, row))
    return RestorePoint(at, True, tuple(offers), tuple(rebases), tuple(ahead), refills, passed_over)


def _diverges(sink: str, at: Manifest, position: Position, why: str) -> Refused:
    return Refused(
        "SW-STATE-DIVERGES",
        f"the newest checkpoint that can be read is {at.epoch}, but sink {sink} is ahead of it, at {position}; what lies "
        f"between would be computed again, and could come out differently: {why}",
        "restore the damaged files from a backup; or, if the rows of the sink may differ from the state by that much, start with "
        "--accept-divergence",
    )


def none_good(problems: Sequence[tuple[int, str]]) -> Refused:
    reasons = "; ".join(f"checkpoint {epoch}: {why}" for epoch, why in sorted(problems, reverse=True)[:3])
    return Refused(
        "SW-CHECKPOINT-NONE",
        f"no checkpoint of this job can be used ({reasons or 'the folder holds none'})",
        "restore the folder from a backup; to start without state, use another --root and empty targets. Nothing was changed",
    )
