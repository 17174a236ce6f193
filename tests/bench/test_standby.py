"""The benchmark of standbys takes over and checks before it reports. Without Spark, for speed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from streamwork.__main__ import cli
from streamwork.bench import standby as bench
from streamwork.bench.recovery import Place
from streamwork.run.mode import Mode

TINY = msgspec.structs.replace(bench.QUICK, keys=100)
ONE_KIND = msgspec.structs.replace(TINY, kinds=("known",))


@pytest.mark.slow
def test_it_measures_every_kind_of_takeover(tmp_path: Path) -> None:
    notes: list[str] = []
    found = bench.run(tmp_path, TINY, notes.append, [Mode.LOCAL])
    seconds = found["seconds"]["local"]
    assert list(seconds) == list(bench.KINDS)
    assert 0 < found["gap_known_s"] == seconds["known"]["gap"]["median"]
    assert seconds["unknown"]["gap"]["min"] > TINY.lease / 2, "the lease counts from the last beat"
    assert [note.split(":")[0] for note in notes[1:]] == [f"local, {kind}, 1 of 1" for kind in bench.KINDS]


@pytest.mark.slow
def test_a_wrong_count_is_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: one event more than the place knows of."""
    append = Place.append

    def one_more(self: Place, checkpoints: int) -> None:
        append(self, checkpoints)
        if self.slice == ONE_KIND.events:
            self.events -= 1

    monkeypatch.setattr(Place, "append", one_more)
    with pytest.raises(AssertionError, match="the rows are wrong|not all events were counted"):
        bench.run(tmp_path, ONE_KIND, modes=[Mode.LOCAL])


def test_other_options_are_for_standbys() -> None:
    answer = CliRunner().invoke(cli, ["bench", "recovery", "--quick"])
    assert answer.exit_code == 2 and "--standby" in answer.output
