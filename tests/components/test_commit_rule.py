"""The commit rule, against the model's table, and the laws that make it safe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamwork.components import LedgerEntry, LedgerRow, Position
from streamwork.epoch import Verdict, judge

positions = st.dictionaries(st.sampled_from(["a/0", "a/1", "b/0"]), st.integers(0, 3)).map(Position)
hashes = st.sampled_from(["m0", "m1", "m2"])


def entry(
    start: Position, end: Position, fence: int = 1, deterministic: bool = True, first: bool = False
) -> LedgerEntry:
    return LedgerEntry("u", "s", fence, 2, start, end, "m1", "m2", deterministic, first)


def row(position: Position | None, sha256: str = "m1", fence: int = 1) -> LedgerRow:
    return LedgerRow(fence, position, sha256)


def test_the_table() -> None:
    a, b, c = (Position({"a/0": offset}) for offset in (1, 2, 3))
    offered = entry(a, b)
    assert judge(row(a), offered) is Verdict.APPLY
    assert judge(row(b, "m2"), offered) is Verdict.ADOPT
    assert judge(row(b, "another"), offered) is Verdict.ADOPT
    assert judge(row(c, "m3"), offered) is Verdict.SKIP
    assert judge(row(Position(), "m0"), offered) is Verdict.REFUSE
    assert judge(row(Position({"b/0": 1})), offered) is Verdict.REFUSE
    assert judge(row(a, fence=2), offered) is Verdict.FENCED
    assert judge(row(None), offered) is Verdict.REFUSE
    assert judge(row(None), entry(Position(), a, first=True)) is Verdict.APPLY


def test_where_operators_are_random_only_the_very_parent_will_do() -> None:
    a, b, c = (Position({"a/0": offset}) for offset in (1, 2, 3))
    offered = entry(a, b, deterministic=False)
    assert judge(row(a, "m1"), offered) is Verdict.APPLY
    assert judge(row(a, "another"), offered) is Verdict.REFUSE
    assert judge(row(b, "m2"), offered) is Verdict.ADOPT
    assert judge(row(b, "another"), offered) is Verdict.REFUSE
    assert judge(row(c, "another"), offered) is Verdict.REFUSE


@given(positions, positions, st.none() | positions, hashes, st.integers(1, 3), st.integers(1, 3), st.booleans())
def test_nothing_is_applied_twice(
    start: Position, more: Position, at: Position | None, sha: str, mine: int, registered: int, deterministic: bool
) -> None:
    """Whatever the ledger says: rows are applied only from the start of the epoch (or by a new sink), never by a lower fence."""
    end = Position({name: start[name] + more[name] for name in {*start, *more}})
    offered = entry(start, end, fence=mine, deterministic=deterministic)
    verdict = judge(LedgerRow(registered, at, sha), offered)
    if verdict is Verdict.APPLY:
        assert registered <= mine
        assert at is not None and at == start
        after = LedgerRow(mine, end, offered.manifest_sha256)
        assert judge(after, offered) is Verdict.ADOPT
