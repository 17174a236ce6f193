"""What must hold, by semantics. Every complaint begins with the invariant that it is about."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow.parquet as pq

from matrix.watched import DRAWS, FACTOR, PRIME
from matrix.world import RETAIN, World
from sample import Payment

ENDS = ("delivered", "ended_early", "dropped", "dead_letters", "failed")
"""What becomes of an event in a component; what has failed comes again."""


def fold(events: Sequence[Payment]) -> tuple[list[tuple[str, int, int]], dict[str, tuple[int, int]]]:
    """The batch program: what a job over these events writes, and what it keeps."""
    state: dict[str, tuple[int, int]] = {}
    rows = []
    for event in events:
        number, total = state.get(event.card, (0, 0))
        state[event.card] = number + 1, total + event.amount
        rows.append((event.card, *state[event.card]))
    return rows, state


def check(world: World, events: Sequence[Payment]) -> None:
    """Every oracle, at rest, after all of `events`."""
    check_echo(world, events)
    check_state(world, fold(events)[1])
    check_ledgers(world)
    check_closed(world, len(events))
    check_nothing_left_over(world)


def check_echo(world: World, events: Sequence[Payment]) -> None:
    wanted, state = fold(events)
    if world.operator == "timers":
        wanted += [(f"bell {card}", number, 0) for card, number, _ in wanted]
    for name in world.sinks:
        got = world.rows(name)
        if world.targets[name].keyed:
            assert Counter(got) == Counter((card, *kept) for card, kept in state.items()), f"ECHO {name}"
            continue
        odd = Counter(got) - Counter(wanted), Counter(wanted) - Counter(got)
        assert not any(odd), f"ECHO {name}: too many {odd[0]}, missing {odd[1]}"
        check_sequences(name, [row for row in got if not row[0].startswith("bell")])


def check_sequences(name: str, rows: Sequence[tuple[str, int, int]]) -> None:
    last: Counter[str] = Counter()
    for card, number, _ in rows:
        assert number == last[card] + 1, f"SEQUENCE {name}: {card} goes from {last[card]} to {number}"
        last[card] = number


def stored_state(world: World) -> Iterator[dict[str, tuple[int, int]]]:
    """What the files of the newest checkpoint hold, read with nothing of ours: first the short way, then the long one.

    A way with a file that was found damaged and set aside is passed over, where the job has not gone on since.
    """
    instances = world.newest()[0]["components"]["sums"].values()
    for is_short in (True, False):
        kept: dict[str, tuple[int, int]] = {}
        for chain in instances:
            paths = [ref["path"] for ref in chain]
            whole = [place for place, path in enumerate(paths) if "snapshot" in path]
            begin = (whole[-1] if is_short else whole[0]) if whole else 0
            after = [path for path in paths[begin:] if "delta" in path]
            for path in [paths[begin], *after] if whole else paths:
                if not (world.home / path).exists():
                    aside = path in world.lost or list(world.home.glob(f"quarantine/*/{path}"))
                    assert aside, f"STATE: {path} is gone"
                    kept = {}
                    break
                for row in pq.ParquetFile(world.home / path).read(use_threads=False).to_pylist():
                    assert not row["__deleted"]
                    kept[row["card"]] = row["number"], row["total"]
            else:
                continue
            break
        else:
            yield kept


def check_state(world: World, wanted: dict[str, tuple[int, int]]) -> None:
    found = list(stored_state(world))
    assert found, "STATE: cannot be read"
    assert all(one == wanted for one in found), f"STATE: {found}, not {wanted}"


def check_ledgers(world: World) -> None:
    manifest, sha256 = world.newest()
    for name in world.sinks:
        assert world.ledger(name) == (manifest["positions"], sha256), f"LEDGER {name}"


def line(world: World) -> Iterator[dict[str, Any]]:
    """The newest manifest and those that it was built on, newest first, also where they are not kept any more."""
    _, sha256 = world.newest()
    while (manifest := world.manifests[sha256])["epoch"]:
        yield manifest
        if manifest["parent"] == 0:
            return
        sha256 = manifest["parent_sha256"]


def check_closed(world: World, events: int) -> None:
    """Along the line that counts, every event was read once, and every component accounts for all that it was given."""
    read = 0
    for manifest in line(world):
        for component, counted in manifest["counters"].items():
            ended = sum(counted.get(name, 0) for name in ENDS)
            assert counted["processed"] == ended, f"CLOSED {component}, epoch {manifest['epoch']}"
        read += manifest["counters"]["payments"]["processed"]
    assert read == events, f"CLOSED: {read} of {events} events were read"


def check_nothing_left_over(world: World) -> None:
    kept = [json.loads(path.read_bytes()) for path in world.checkpoints]
    assert len(kept) <= RETAIN + 1, "LEFT OVER: manifests"
    prepared = {int(path.name.split(".")[0]) for path in world.home.glob("checkpoints/*.prepared.json")}
    assert prepared <= {manifest["epoch"] for manifest in kept}, "LEFT OVER: prepared"
    named = {
        ref["path"] for m in kept for chains in m["components"].values() for chain in chains.values() for ref in chain
    }
    named |= {ref["path"] for m in kept for part in m["sinks"].values() for ref in part["staged"].values()}
    named |= {ref["path"] for m in kept for staged in m["letters"].values() for ref in staged.values()}
    named |= {ref["path"] for m in kept for ref in m["failed"]}
    found = {
        world.name(path)
        for folder in ("state", "outputs", "inbox/@waiting")
        for path in world.home.glob(f"{folder}/**/*.*")
    }
    assert found <= named, f"LEFT OVER: {sorted(found - named)}"
    plans = {int(path.name.split(".")[0]) for path in world.home.glob("checkpoints/*.plan.json")}
    assert min(plans) >= min(manifest["epoch"] for manifest in kept), "LEFT OVER: plans"


def check_agreement(world: World, events: Sequence[Payment]) -> None:
    """For results that nobody can compute again: sinks and state agree with each other, and every event counts once."""
    histories = [sorted(world.rows(name)) for name in world.sinks if not world.targets[name].keyed]
    assert all(history == histories[0] for history in histories), "AGREEMENT of the sinks"
    check_sequences("history", histories[0])
    last = {card: (number, total) for card, number, total in histories[0]}
    assert {card: number for card, (number, _) in last.items()} == Counter(event.card for event in events), "AGREEMENT"
    totals: Counter[str] = Counter()
    for card, number, total in histories[0]:
        assert (total - totals[card] * FACTOR) % PRIME < DRAWS, f"AGREEMENT: {card} {number} was made from another sum"
        totals[card] = total
    check_state(world, last)
    check_ledgers(world)
    check_closed(world, len(events))
    check_nothing_left_over(world)


# ---- where rows are written at once: every row names the event that it was made from ---------------------------------


def echoed(count: int) -> list[Payment]:
    """Events that can be told apart: the amount is the place in the input."""
    return [Payment(f"card-{i * 31 % 5}", i) for i in range(count)]


def ids_of(world: World, name: str) -> Counter[int]:
    """The ids that a sink holds, with how often."""
    return Counter(total for _, _, total in world.rows(name))


def dropped(world: World) -> int:
    """How many events were dropped, or are dead letters, along the line that counts."""
    counted = [counters for manifest in line(world) for counters in manifest["counters"].values()]
    return sum(counters["dropped"] + counters.get("dead_letters", 0) for counters in counted)


def check_at_most_once(world: World, events: Sequence[Payment], lost: set[int] | None = None) -> int:
    """`lost` is what may be missing: what was open when a life broke, unless something else is said. How much is missing."""
    may = world.in_doubt if lost is None else lost
    ids = {event.amount for event in events}
    most = 0
    for name, target in world.targets.items():
        found = ids_of(world, name)
        assert set(found) <= ids, f"AT-MOST-ONCE {name}: {sorted(set(found) - ids)} was never there"
        assert not target.keyed or len(found) == len(world.rows(name))
        assert max(found.values(), default=1) == 1, f"AT-MOST-ONCE {name}: twice {sorted(found - Counter(set(found)))}"
        missing = {one for one in _unseen(target.keyed, set(found), events) if one not in may}
        assert len(missing) <= dropped(world), f"AT-MOST-ONCE {name}: {sorted(missing)} is missing, and was not open"
        most = max(most, len(_unseen(target.keyed, set(found), events)))
    return most


def check_at_least_once(
    world: World, events: Sequence[Payment], again: set[int] | None = None, without: Sequence[int] = ()
) -> int:
    """`again` is what may come twice: what was open when a life broke, unless something else is said; `without` are those that
    were given up. How much was repeated.
    """
    may = world.in_doubt if again is None else again
    ids = {event.amount for event in events}
    most = 0
    for name, target in world.targets.items():
        found = ids_of(world, name)
        assert set(found) <= ids, f"AT-LEAST-ONCE {name}: {sorted(set(found) - ids)} was never there"
        missing = _unseen(target.keyed, set(found), events) - set(without)
        assert not missing, f"AT-LEAST-ONCE {name}: {sorted(missing)} is missing"
        twice = {one for one, count in found.items() if count > 1}
        assert twice <= may, f"AT-LEAST-ONCE {name}: {sorted(twice - may)} came again, and was not open"
        most = max(most, len(twice))
    return most


def _unseen(keyed: bool, found: set[int], events: Sequence[Payment]) -> set[int]:
    """The ids that were not written. Of a card only the last one shows where there is a key: those behind it are missing."""
    if not keyed:
        return {event.amount for event in events} - found
    shown = {event.card: event.amount for event in events if event.amount in found}
    return {event.amount for event in events if event.amount > shown.get(event.card, -1)}


def check_state_at_once(world: World, events: Sequence[Payment], without: set[int]) -> None:
    """The state is the fold of what was not left out."""
    check_state(world, fold([event for event in events if event.amount not in without])[1])


def check_counts(world: World, events: int) -> None:
    """Every source event was read in a completed epoch, or was left out; and every component accounts for all that it got."""
    read = sum(manifest["counters"]["payments"]["processed"] for manifest in line(world))
    replayed = sum(manifest["counters"]["payments"].get("replayed", 0) for manifest in line(world))
    check_closed(world, read)
    assert read - replayed == events, f"CLOSED: {read} events were read, {replayed} of them again; not {events}"


# ---- readers ---------------------------------------------------------------------------------------------------------


def check_readers(world: World, events: Sequence[Payment]) -> None:
    """Read committed, at any moment: a sink holds whole epochs, those up to its ledger, and none that is not prepared."""
    prepared = [manifest["positions"] for manifest in world.manifests.values()]
    for name, target in world.targets.items():
        position, _ = target.ledger()
        assert not position or position in prepared, f"READ COMMITTED {name}: {position} was never prepared"
        if target.whole:
            rows, state = fold(events[: position.get("payments/0", 0)])
            wanted = Counter((card, *kept) for card, kept in state.items()) if target.keyed else Counter(rows)
            odd = Counter(target.rows()) - wanted, wanted - Counter(target.rows())
            assert not any(odd), f"READ COMMITTED {name}: too many {odd[0]}, missing {odd[1]}"


def check_previews(world: World, events: Sequence[Payment], shown: Sequence[Payment]) -> None:
    """Read uncommitted: the view has what is committed, and of what is open the events `shown`, each once."""
    for name, target in world.targets.items():
        upto = target.ledger()[0].get("payments/0", 0)
        rows, after = fold([*events[:upto], *shown])
        wanted = Counter((card, *kept) for card, kept in after.items()) if target.keyed else Counter(rows)
        odd = Counter(target.dirty()) - wanted, wanted - Counter(target.dirty())
        assert not any(odd), f"READ UNCOMMITTED {name}: too many {odd[0]}, missing {odd[1]}"
        if not shown:
            assert not target.previewed(), f"READ UNCOMMITTED {name}: previews are left"
