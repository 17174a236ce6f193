"""The pictures of docs/joins.md. `page` are the variables of the page's examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple

import duckdb

from pictures.svg import Picture, TimeAxis

WIDTH, LEFT, RIGHT = 920, 150, 890
Page = Mapping[str, Any]


class Version(NamedTuple):
    """A version of a table: what it holds, from when to when."""

    begin: datetime
    end: datetime | None
    text: str


def table(page: Page) -> str:
    """Vehicles, and the temperatures that they meet."""
    axis = TimeAxis(page["START"], page["at"](30), LEFT, RIGHT)
    picture = Picture(WIDTH, 330, "Vehicles meet the temperatures that were valid when they passed")
    _axis(picture, axis, timedelta(minutes=5), 290)
    met = {row.plate: row.temperatures_at for row in page["emission"]}
    top = 52
    for zone in ("centre", "harbour", "airport"):
        picture.text(20, top + 5, zone, style="bold")
        picture.text(20, top + 42, "temperatures", "muted", style="small")
        readings = [one for one in page["TEMPERATURES"] if one.zone == zone]
        bars = _versions(readings, lambda one: f"{one.celsius} °C")
        _table(picture, axis, bars, top + 28)
        for vehicle in page["VEHICLES"]:
            if vehicle.zone == zone:
                waits = vehicle.plate not in met
                _row(picture, axis.x(vehicle.at), top, vehicle.plate, met.get(vehicle.plate), waits, axis, bars)
        top += 82
    picture.text(
        LEFT,
        316,
        "filled: emitted with the version below; hollow: no match; dashed: still waits",
        "muted",
        style="small",
    )
    return picture.svg()


def as_of(page: Page) -> str:
    """Trades, placed at the time at which they were made, with the time of their report."""
    axis = TimeAxis(page["START"], page["at"](105), LEFT, RIGHT)
    picture = Picture(WIDTH, 250, "Trades meet the quotes of the time at which they were made")
    _axis(picture, axis, timedelta(minutes=10), 200)
    bars = _versions(page["QUOTES"], lambda one: f"{one.cents} cents")
    picture.text(20, 165, "quotes", "muted", style="small")
    _table(picture, axis, bars, 150)
    picture.text(20, 60, "reported", "muted", style="small")
    picture.text(20, 115, "made", "muted", style="small")
    late = {row.pieces for row in page["too_late"]}
    met = {row.pieces: row.at for row in page["prices"]}
    for trade in page["TRADES"]:
        colour = "bad" if trade.pieces in late else "one"
        x, reported = axis.x(trade.made_at), axis.x(trade.reported_at)
        picture.line(reported, 60, x, 104, colour, "dashed thin")
        picture.dot(reported, 56, colour, hollow=True)
        picture.text(reported + 8, 50, f"{trade.pieces}", colour, style="small")
        if trade.pieces in met:
            assert any(bar.begin == met[trade.pieces] <= trade.made_at for bar in bars)
            picture.line(x, 110, x, 150, colour, "arrow")
        picture.dot(x, 110, colour, hollow=trade.pieces in late)
    picture.text(LEFT, 228, "red: late, because its version may be gone", "muted", style="small")
    return picture.svg()


def within(page: Page) -> str:
    """Clicks above, purchases below, a line for each pair."""
    axis = TimeAxis(page["START"], page["at"](165), LEFT, RIGHT)
    picture = Picture(WIDTH, 390, "Clicks and purchases of one user within 30 minutes")
    _axis(picture, axis, timedelta(minutes=30), 346)
    rows = page["attribution"]
    top = 54
    for user in ("ada", "bob", "cyd"):
        if user != "ada":
            picture.line(20, top - 22, RIGHT, top - 22, "grid", "thin")
        mine = [row for row in rows if row.user == user]
        picture.text(20, top + 30, user, style="bold")
        picture.text(70, top + 5, "clicks", "one", style="small")
        picture.text(70, top + 61, "purchases", "two", style="small")
        for row in mine:
            if row.at is not None and row.purchases_at is not None:
                picture.line(axis.x(row.at), top, axis.x(row.purchases_at), top + 56, "ink")
        for lane, colour, time, events in (
            (top, "one", "at", page["CLICKS"]),
            (top + 56, "two", "purchases_at", page["PURCHASES"]),
        ):
            matched = {getattr(row, time) for row in mine if None not in (row.at, row.purchases_at)}
            alone = {getattr(row, time) for row in mine} - matched
            for event in events:
                if event.user == user:
                    x = axis.x(event.at)
                    label = event.page if colour == "one" else f"{event.cents}"
                    picture.dot(x, lane, colour, hollow=event.at not in matched)
                    word = "" if event.at in matched else ": no match" if event.at in alone else ": waits"
                    picture.text(x + 9, lane + (-6 if colour == "one" else 17), label + word, colour, style="small")
        top += 102
    picture.text(LEFT, 374, "a line for each pair that is emitted", "muted", style="small")
    return picture.svg()


def static(page: Page) -> str:
    """Clicks on the left, the static table on the right."""
    left = [(row.user, row.page) for row in page["CLICKS"][1:3]]
    right = duckdb.sql(f"SELECT * FROM {page['customers']}").fetchall()
    pairs = [((row.user, row.page), (row.user, row.city)) for row in page["cities"]]
    return _tables("Clicks and the rows of a static table", ("clicks", left), ("customers, static", right), pairs)


def lookup(page: Page) -> str:
    """Clicks on the left, the rows that the query found on the right."""
    left = [(row.user, row.page) for row in page["CLICKS"]]
    right = sorted({(row.page, f"{row.cents}") for row in page["looked_up"] if row.cents is not None})
    pairs = [((row.user, row.page), (row.page, f"{row.cents}")) for row in page["looked_up"] if row.cents is not None]
    return _tables("Clicks and the rows that a query finds", ("clicks", left), ("pages, in a database", right), pairs)


Rows = Sequence[tuple[str, ...]]


def _tables(
    title: str,
    left: tuple[str, Rows],
    right: tuple[str, Rows],
    pairs: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
) -> str:
    height = 64 + 34 * max(len(left[1]), len(right[1]))
    picture = Picture(WIDTH, height, title)
    places: dict[tuple[str, tuple[str, ...]], float] = {}
    for (name, rows), x, colour in ((left, 180, "one"), (right, 560, "two")):
        picture.text(x, 30, name, colour, style="bold")
        for number, row in enumerate(rows):
            y = 44 + number * 34
            has_match = any(row in pair for pair in pairs)
            picture.box(x, y, 200, 26, colour, "" if has_match else "dashed")
            picture.text(x + 12, y + 18, ", ".join(row) + ("" if has_match else ": no match"), colour, style="small")
            places[name, row] = y + 13
    for mine, theirs in pairs:
        picture.line(380, places[left[0], mine], 560, places[right[0], theirs], "ink", "arrow")
    return picture.svg()


def _versions(events: Sequence[Any], text: Callable[[Any], str]) -> list[Version]:
    """The versions of one key: each ends where the next one begins."""
    return [Version(one.at, after.at if after else None, text(one)) for one, after in zip_longest(events, events[1:])]


def _table(picture: Picture, axis: TimeAxis, versions: Sequence[Version], y: float) -> None:
    for version in versions:
        x, end = axis.x(version.begin), axis.x(version.end or axis.end)
        picture.box(x + 1, y, end - x - 2, 20, "two")
        picture.text((x + end) / 2, y + 15, version.text, "two", "middle", "small")


def _row(
    picture: Picture,
    x: float,
    y: float,
    text: str,
    met: datetime | None,
    waits: bool,
    axis: TimeAxis,
    versions: Sequence[Version],
) -> None:
    """An event, with an arrow to the version that it was emitted with."""
    if met is not None:
        version = next(one for one in versions if one.begin == met)
        assert axis.x(version.begin) <= x <= axis.x(version.end or axis.end)
        picture.line(x, y, x, y + 28, "one", "arrow")
    elif waits:
        picture.line(x, y, x, y + 28, "one", "dashed")
    picture.dot(x, y, "one", hollow=met is None)
    picture.text(x + 9, y - 4, text, "one", style="small")


def _axis(picture: Picture, axis: TimeAxis, step: timedelta, bottom: float) -> None:
    at = axis.begin
    while at <= axis.end:
        picture.line(axis.x(at), 32, axis.x(at), bottom, "grid", "thin")
        picture.text(axis.x(at), 24, f"{at:%H:%M}", "muted", "middle", "small")
        at += step
