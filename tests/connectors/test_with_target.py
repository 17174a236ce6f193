"""Sinks with another target, for a job that was forked: the rows of both lives are apart, and so are their ledgers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from connectors.kits import DURABLE, Kit, cases, entry, seen, staged
from sample import Seen
from streamwork.run.forking import PLACE

every = pytest.mark.parametrize("kit", cases(DURABLE), indirect=True)


def another(kit: Kit) -> str:
    if hasattr(kit, "topic"):
        return f"{kit.topic}-other"
    names = {"SqliteKit": "other.db", "SqliteUpsertKit": "other.db", "ParquetKit": "other", "LogKit": "other"}
    name = names.get(type(kit).__name__)
    return "other" if name is None else str(kit.folder / name)


@every
def test_both_lives_have_their_own_rows_and_ledgers(kit: Kit) -> None:
    first = kit.driver()
    first.commit(entry(1, 0, 3), staged(seen(1, 2, 3)))
    assert first.used(), "it holds rows"
    other: Any = pickle.loads(pickle.dumps(first.with_target(another(kit))))
    assert not other.used() and other.ledger("f", "s") is None
    other.check_target("f", "s")
    other.open(Seen)
    other.register("f", "s", 1)
    other.commit(entry(1, 0, 1, uid="f"), staged(seen(9)))
    first.commit(entry(2, 3, 4), staged(seen(4)))
    assert kit.rows() == kit.expected(seen(1, 2, 3, 4))
    assert other.used()
    assert other.ledger("f", "s").manifest_sha256 == "m1"
    assert first.ledger("u", "s").manifest_sha256 == "m2"
    other.close()


@every
def test_the_place_of_a_target_is_known(kit: Kit) -> None:
    """Two sinks of a fork with the same place are refused (`run.forking`)."""
    first = kit.make()
    place = {name: str(value) for name, value in vars(first).items() if name in PLACE}
    assert place and place != {
        name: str(value) for name, value in vars(first.with_target(another(kit))).items() if name in PLACE
    }
