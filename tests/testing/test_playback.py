"""Playback of a simulated run: what the frames show is what the run did."""

from __future__ import annotations

import msgspec
import pytest

from sample import Payment, Summing, payments
from streamwork import Job, ListSource, SqliteSink
from streamwork.testing import run
from streamwork.testing.playback import Frame, Kind, Playback, demonstrate, play
from streamwork.testing.playback.demonstration import SALES, SLICE, Sale, shops

SEEDS = range(6)


def misaligned(playback: Playback) -> list[str]:
    """What contradicts alignment: an event taken from a blocked input, or a state that holds more than its checkpoint."""
    found = []
    for before, frame in zip(playback.frames, playback.frames[1:], strict=False):
        if frame.kind is Kind.APPLY and frame.edge in before.places[frame.place].blocked:
            found.append(f"{frame.number}: an event is taken from a blocked input")
    for frame in playback.frames:
        if frame.kind is Kind.REPORT:
            found += [
                f"{frame.number}: {item} is {pieces} in checkpoint {frame.epoch}, not {sold(frame, item)}"
                for item, pieces in states(frame).items()
                if pieces != sold(frame, item)
            ]
    return found


def states(frame: Frame) -> dict[str, int]:
    """What the instances have stored for the checkpoint that is reported."""
    stored = {}
    for name, place in frame.places.items():
        if place.snapshot is not None and name.startswith("count"):
            assert place.snapshot.epoch >= frame.epoch
            if place.snapshot.epoch == frame.epoch:
                stored |= {item: int(pieces) for item, pieces in place.snapshot.state.items()}
    return stored


def sold(frame: Frame, item: str) -> int:
    """The pieces among the input up to the offsets of a checkpoint: each holds as many events from each shop."""
    slices = frame.epoch if frame.life == 1 else 1 + frame.completed
    return sum(sales[: slices * SLICE].count(item) for sales in SALES.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_inputs_are_aligned_in_every_schedule(seed: int) -> None:
    playback = demonstrate(seed)
    assert playback.whole and not misaligned(playback)
    kinds = {frame.kind for frame in playback.frames}
    assert kinds == set(Kind) - {Kind.CRASH}, "alignment is seen: inputs are blocked"


def test_control_without_alignment_it_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamwork.flow.dispatcher import Dispatcher

    monkeypatch.setattr(Dispatcher, "blocked", property(lambda self: set()))
    playbacks = []
    for seed in range(20):
        try:
            playbacks.append(demonstrate(seed))
        except Exception as error:  # two checkpoints at once in one instance: the dispatcher itself refuses
            assert "SW-ENGINE-ALIGNMENT" in repr(error)
    assert any(misaligned(playback) for playback in playbacks)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_frame_changes_nothing_of_the_run(seed: int) -> None:
    inputs = {shop: [Sale(item) for item in items] for shop, items in SALES.items()}
    plain = run(shops(), inputs, seed, epoch_events=SLICE)
    (last,) = demonstrate(seed).frames[-1:]
    assert last.sinks["sold"].rows == tuple(f"{row.item} {row.pieces}" for row in plain.outputs["sold"])
    assert last.completed == plain.checkpoints[-1]


def test_a_crash_right_after_a_frame_ends_with_the_same_rows() -> None:
    calm = demonstrate(1)
    rows = sorted(calm.frames[-1].sinks["sold"].rows)
    for frame in calm.frames[:-1:2]:
        played = demonstrate(1, [frame.crash_at])
        crash = next(one for one in played.frames if one.kind is Kind.CRASH)
        same = played.frames[: min(frame.number + 1, crash.number)]
        assert list(same) == list(calm.frames[: len(same)]), "up to the crash nothing differs"
        assert crash.number - frame.number in (1, 2), "a turn and the report that follows from it are one step"
        assert not any(place.state for place in crash.places.values())
        assert sorted(played.frames[-1].sinks["sold"].rows) == rows
        start = next(one for one in played.frames[crash.number :] if one.kind is Kind.START)
        prepared = any(one.kind is Kind.PREPARE for one in played.frames[: crash.number])
        assert bool(start.epoch) == prepared, "what was prepared is rolled forward"


def test_tokens_keep_their_numbers_while_they_wait() -> None:
    for before, frame in zip(demonstrate(2).frames, demonstrate(2).frames[1:], strict=False):
        for edge, tokens in frame.edges.items():
            numbers = [token.number for token in tokens]
            waited = [token.number for token in before.edges.get(edge, ())]
            assert numbers == sorted(numbers)
            assert waited[len(waited) - len([n for n in numbers if n in waited]) :] == [
                n for n in numbers if n in waited
            ]


def test_another_job_can_be_played() -> None:
    job = Job("played", parallelism=2)
    summed = job.source(ListSource([], Payment), id="payments").apply(Summing(), key="card", id="sums")
    summed.sink(SqliteSink("never-opened.db", "t"), id="journal")
    playback = play(job, {"payments": payments(12)}, seed=3, epoch_events=4)
    assert playback.scene.sinks == {"journal": ("sums[0]", "sums[1]")}
    assert len(playback.frames[-1].sinks["journal"].rows) == 12


def test_a_long_run_is_cut_off() -> None:
    assert not play(shops(), {shop: [Sale("tea")] * 50 for shop in SALES}, epoch_events=2, most_frames=40).whole


def test_it_is_plain_json() -> None:
    playback = demonstrate(0)
    assert msgspec.json.decode(msgspec.json.encode(playback), type=Playback) == playback
