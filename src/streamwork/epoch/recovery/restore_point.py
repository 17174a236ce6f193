"""Which manifest a start builds on, and what has to be done to the sinks first. Pure: it is told what was found.

    1  The newest manifest, completed or only prepared, whose state can be read and to which every sink already is or can be
       brought with the staged outputs that are kept. A prepared one is thereby rolled forward; nothing is computed twice.
    2  If there is none, because some sink is ahead of everything that can be read: the newest completed one that every sink is
       at, can be brought to, or is ahead of. What a sink is ahead by is computed again and not written again; so this is only
       right where computing again gives the same.

A sink without a ledger row, although it was registered or a completed manifest was committed to it, is lost: its target was
removed, replaced, or is looked for elsewhere. It is refused (SW-SINK-LOST). Where a person asks for it (`refill`), the sink
gets the staged outputs that are kept, from the oldest manifest on that leads to the chosen one without a gap.

A manifest of fence f counts only up to the epoch where the next fence started: beyond it is what a driver went on to do
after it had lost its job. Sinks are compared by position, never by number.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from streamwork.components import LedgerRow, Position
from streamwork.components.commit_rule import lost, wrong_ledger
from streamwork.epoch.fences import Start
from streamwork.epoch.manifest import Manifest
from streamwork.epoch.store import Stored
from streamwork.errors import Refused

Ledgers = Mapping[str, LedgerRow | None]


@dataclass(frozen=True)
class Choice:
    """What to build on, and what to do first."""

    at: Manifest
    completed: bool
    offers: tuple[tuple[str, Manifest], ...] = ()  # (sink, manifest), oldest first: the sink is behind
    rebases: tuple[str, ...] = ()  # sinks whose rows are all there, from a manifest that cannot be used
    ahead: tuple[tuple[str, Position], ...] = ()  # sinks that have more than `at`, and where they are
    refills: tuple[str, ...] = ()  # sinks among the offers that were lost, and are filled again
    passed_over: tuple[tuple[int, str], ...] = ()  # newer epochs that cannot be built on, and why


class Catalogue:
    """The manifests that can be had and count, and what is known of their files."""

    def __init__(
        self,
        stored: Sequence[Stored],
        starts: Mapping[int, Start],
        state_problem: Callable[[Manifest], str],
        staged_problem: Callable[[Manifest, str], str],
        registered: Collection[str] = (),
        refill: Collection[str] = (),
    ) -> None:
        """`registered` are the sinks that the last start wrote its fence into; `refill` those that may be filled again."""
        self._registered = registered
        self._refill = refill
        self._starts = starts
        self._state_problem = state_problem
        self._staged_problem = staged_problem
        self._completed = {s.epoch for s in stored if s.completed}
        readable = [s.manifest for s in stored if s.manifest is not None]
        self._by_hash = {manifest.sha256: manifest for manifest in readable}
        # Whoever is somebody's parent was completed, even if the copy that says so is lost.
        parents = {manifest.parent_sha256 for manifest in readable}
        self._completed |= {self._by_hash[sha].epoch for sha in parents if sha in self._by_hash}
        self._written = {name for m in readable if self.is_completed(m) for name in m.sinks}
        self.unreadable = [(s.epoch, s.problem) for s in stored if s.manifest is None]
        self.newest_first = sorted((m for m in readable if self._counts(m)), key=lambda m: m.age, reverse=True)

    def _counts(self, manifest: Manifest) -> bool:
        later = [self._starts[fence] for fence in sorted(self._starts) if fence > manifest.fence > 0]
        return not later or manifest.epoch <= later[0].epoch

    def is_completed(self, manifest: Manifest) -> bool:
        return manifest.epoch in self._completed

    def problem(self, manifest: Manifest) -> str:
        return self._state_problem(manifest)

    def lineage(self, manifest: Manifest) -> Iterator[Manifest]:
        """The manifest, its parent, and so on, as far as they can be had."""
        one: Manifest | None = manifest
        while one is not None:
            yield one
            one = self._by_hash.get(one.parent_sha256)

    def line(self, manifest: Manifest) -> list[Manifest]:
        """The manifest and those of its ancestors that are there, newest first. Those between may be gone, and with them the way
        from child to parent; but a completed manifest that counts and is older is an ancestor: what was built on anything else
        lies beyond the start of a later fence.
        """
        older = [one for one in self.newest_first if one.age < manifest.age and self.is_completed(one)]
        return [manifest, *older]

    def has_lost(self, sink: str, row: LedgerRow | None) -> bool:
        """True if the sink had a ledger row, and has none. (One that was never written is a sink that was rolled back.)"""
        return row is None and (sink in self._registered or sink in self._written)

    def refills(self, sink: str, row: LedgerRow | None) -> bool:
        """True if the sink may be filled again, and lacks what was written to it. It is registered by now."""
        return sink in self._refill and sink in self._written and (row is None or row.position is None)

    def _kept(self, manifest: Manifest, sink: str) -> list[Manifest] | None:
        """The manifests up to this one whose outputs for a sink are kept without a gap, oldest first; None without its own."""
        path: list[Manifest] = []
        for one in self.lineage(manifest):
            if sink not in one.sinks or self._staged_problem(one, sink):
                break
            path.insert(0, one)
        return path or None

    def way(self, manifest: Manifest, sink: str, row: LedgerRow | None) -> list[Manifest] | None:
        """The manifests to offer to a sink, oldest first, to bring it to `manifest`. None if there is no such way."""
        written = row is not None and row.position is not None
        if self.has_lost(sink, row):
            return None
        if self.refills(sink, row):
            return self._kept(manifest, sink)
        if not written and sink in self._written and sink not in manifest.sinks:
            return None  # it has lost everything: filling it again is one thing, starting all over for its sake another
        path: list[Manifest] = []
        at = row.manifest_sha256 if row is not None else ""
        for one in self.lineage(manifest):
            if (written and one.sha256 == at) or (not written and sink not in one.sinks):
                return path  # a sink that was never written is where the job had not got to know it yet
            if self._staged_problem(one, sink):
                return None
            path.insert(0, one)
            if one.parent_sha256 == at if written else one.sinks[sink].first:
                return path  # the parent itself need not be there any more
        return None


def choose(shelf: Catalogue, ledgers: Ledgers, replayable: Callable[[Manifest, Position], str]) -> Choice:
    """`replayable` says why what a sink is ahead by cannot be computed again with the same result; empty if it can."""
    passed_over = list(shelf.unreadable)
    for manifest in shelf.newest_first:
        found = _reach(shelf, manifest, ledgers)
        problem = found if isinstance(found, str) else shelf.problem(manifest)
        if not problem and not isinstance(found, str):
            refills = tuple(sink for sink, row in ledgers.items() if shelf.refills(sink, row))
            newer = _newer(manifest, passed_over)
            return Choice(manifest, shelf.is_completed(manifest), found, refills=refills, passed_over=newer)
        passed_over.append((manifest.epoch, problem))
    first: Refused | None = None
    for manifest in shelf.newest_first:
        if shelf.is_completed(manifest) and not shelf.problem(manifest):
            try:
                return _fall_back(shelf, manifest, ledgers, replayable, _newer(manifest, passed_over))
            except Refused as refusal:
                first = first or refusal
    raise first or none_good(passed_over)


def _newer(manifest: Manifest, passed_over: Sequence[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    return tuple((epoch, why) for epoch, why in passed_over if epoch > manifest.epoch and why)


def _reach(shelf: Catalogue, manifest: Manifest, ledgers: Ledgers) -> tuple[tuple[str, Manifest], ...] | str:
    """What to offer so that every sink is at `manifest`; or why that cannot be."""
    offers: list[tuple[str, Manifest]] = []
    for sink, row in ledgers.items():
        path = shelf.way(manifest, sink, row)
        if path is None:
            return f"sink {sink} is not at it and cannot be brought to it"
        offers += [(sink, one) for one in path]
    return tuple(sorted(offers, key=lambda offer: offer[1].age))


def _fall_back(
    shelf: Catalogue,
    at: Manifest,
    ledgers: Ledgers,
    replayable: Callable[[Manifest, Position], str],
    passed_over: tuple[tuple[int, str], ...],
) -> Choice:
    offers: list[tuple[str, Manifest]] = []
    rebases: list[str] = []
    ahead: list[tuple[str, Position]] = []
    for sink, row in ledgers.items():
        path = shelf.way(at, sink, row)
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
        elif why := replayable(at, row.position):
            raise _diverges(sink, at, row.position, why)
        elif row.position == at.positions:
            rebases.append(sink)
        else:
            ahead.append((sink, row.position))
    refills = tuple(sink for sink, row in ledgers.items() if shelf.refills(sink, row))
    return Choice(at, True, tuple(offers), tuple(rebases), tuple(ahead), refills, passed_over)


def _diverges(sink: str, at: Manifest, position: Position, why: str) -> Refused:
    return Refused(
        "SW-STATE-DIVERGES",
        f"the newest checkpoint that can be read is {at.epoch}, but sink {sink} is ahead of it, at {position}; what lies "
        f"between would be computed again, and could come out differently: {why}",
        "bring the damaged files back from a copy; or, if what the sink has may differ from the state by that much, start "
        "with --accept-divergence",
    )


def none_good(problems: Sequence[tuple[int, str]]) -> Refused:
    told = "; ".join(f"checkpoint {epoch}: {why}" for epoch, why in sorted(problems, reverse=True)[:3])
    return Refused(
        "SW-CHECKPOINT-NONE",
        f"no checkpoint of this job can be used ({told or 'the folder holds none'})",
        "bring the folder back from a copy; to begin anew, take another --root and empty targets. Nothing was changed",
    )
