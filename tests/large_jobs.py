"""Jobs whose events and records are larger than a batch may be, importable by Spark's workers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from streamwork import Event, KeyedOperator, Operator, Record


class Page(Event):
    site: str
    number: int
    text: str
    words: list[str]


class Site(Record):
    pages: int = 0
    texts: list[str] = []
    last: str = ""


class Indexed(Event):
    site: str
    pages: int
    last: str
    texts: list[str]


class Indexing(KeyedOperator[Page, Site, Indexed]):
    def apply(self, event: Page, state: Site, collector: Any) -> None:
        state.pages += 1
        state.last = event.text
        state.texts = [*state.texts, *event.words][-4:]
        collector.emit(Indexed(event.site, state.pages, state.last, state.texts))


class Passing(Operator[Page, Page]):
    """By whole columns, in two parts."""

    def apply_batch(self, batch: pa.RecordBatch, collector: Any) -> None:
        half = batch.num_rows // 2
        collector.emit_batch(batch.slice(0, half))
        collector.emit_batch(batch.slice(half))


class Refusing(Operator[Page, Page]):
    def apply(self, event: Page, collector: Any) -> None:
        raise ValueError(event.text)


def pages(count: int, seed: int = 1) -> list[Page]:
    """Of very different sizes: now and then one is larger than all others together."""
    rng = random.Random(seed)
    return [
        Page(
            f"site-{rng.randrange(40)}-{'x' * rng.choice([0, 30, 200])}",
            number,
            "t" * rng.choice([0, 5, 100, 700]) + str(number),
            ["w" * rng.choice([0, 9, 300]) for _ in range(rng.choice([0, 1, 5]))],
        )
        for number in range(count)
    ]
