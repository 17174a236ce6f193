"""The pictures of docs/windows.md. `page` are the variables of the page's examples."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from pictures.svg import Picture, TimeAxis, lanes

WIDTH, LEFT, RIGHT = 920, 150, 890
CARDS = {"c1": "one", "c2": "two"}
LANE = 24
Page = Mapping[str, Any]


def by_time(page: Page) -> str:
    """The windows by time of the page's payments: those that have closed, and, dashed, those that are open at the end."""
    start = page["START"]
    axis = TimeAxis(start - timedelta(minutes=5), start + timedelta(minutes=35), LEFT, RIGHT)
    rows = [(name, *_placed(name, page, axis)) for name in page["BY_TIME"]]
    height = 130 + sum(_height(count) for _, _, count in rows) + 34
    picture = Picture(WIDTH, height, "Fixed, sliding and session windows over the same payments of two cards")
    _grid(picture, axis, height - 44)
    _payments(picture, axis, page)
    top = 122
    for name, placed, count in rows:
        picture.line(20, top, RIGHT, top, "grid", "thin")
        _name(picture, top, page["BY_TIME"][name])
        for window, is_open, lane in placed:
            _window(
                picture, axis.x(window.window_start), axis.x(window.window_end), top + 10 + lane * LANE, window, is_open
            )
        top += _height(count)
    picture.line(20, top, RIGHT, top, "grid", "thin")
    _legend(
        picture,
        top + 24,
        "3: 35 means 3 payments of 35 euros together; dashed: windows that are open when the input ends",
    )
    return picture.svg()


def _placed(name: str, page: Page, axis: TimeAxis) -> tuple[list[tuple[Any, bool, int]], int]:
    """((window, is it open, lane) of each window; how many lanes there are)"""
    found: list[tuple[Any, bool, int]] = []
    used = 0
    for card in CARDS:
        windows = [(one, False) for one in page["closed"][name]] + [(one, True) for one in page["still_open"][name]]
        mine = sorted((one for one in windows if one[0].card == card), key=lambda one: one[0].window_start)
        spans = [(axis.x(window.window_start), axis.x(window.window_end)) for window, _ in mine]
        given = lanes(spans)
        found += [(window, is_open, used + lane) for (window, is_open), lane in zip(mine, given, strict=True)]
        used += max(given) + 1
    return found, used


def by_count(page: Page) -> str:
    """The windows by count: each is drawn below the payments that it has."""
    rows = page["BY_COUNT"]
    of_card = {card: [one for one in page["PAYMENTS"] if one.card == card] for card in CARDS}
    lane_count = {name: sum(_depth(page, name, card) for card in CARDS) for name in rows}
    height = 130 + sum(_height(lane_count[name]) for name in rows) + 34
    picture = Picture(WIDTH, height, "Windows by count over the same payments of two cards")
    step = (RIGHT - LEFT) / max(len(payments) for payments in of_card.values())
    for place, (card, payments) in enumerate(of_card.items()):
        y = 50 + place * 36
        picture.text(20, y + 5, f"card {card}", CARDS[card], style="bold")
        for number, payment in enumerate(payments):
            x = LEFT + (number + 0.5) * step
            picture.dot(x, y, CARDS[card])
            picture.text(x + 10, y + 5, f"{payment.euros}", CARDS[card])
    for number in range(max(len(payments) for payments in of_card.values())):
        picture.text(LEFT + (number + 0.5) * step, 24, f"{_ordinal(number + 1)} payment", "muted", "middle", "small")
    top = 122
    for name in rows:
        picture.line(20, top, RIGHT, top, "grid", "thin")
        _name(picture, top, page["BY_COUNT"][name])
        kind, used = page["BY_COUNT"][name], 0
        for card in CARDS:
            windows = [one for one in page["full"][name] if one.card == card]
            spans = [(LEFT + one.window_number * kind.step * step, kind.length * step) for one in windows]
            given = lanes([(begin, begin + wide) for begin, wide in spans])
            for window, (begin, wide), lane in zip(windows, spans, given, strict=True):
                _window(picture, begin + 8, begin + wide - 8, top + 10 + (used + lane) * LANE, window, False)
            used += _depth(page, name, card)
        top += _height(lane_count[name])
    picture.line(20, top, RIGHT, top, "grid", "thin")
    _legend(
        picture, top + 24, "2: 30 means 2 payments of 30 euros together; windows that are not full have emitted nothing"
    )
    return picture.svg()


def _depth(page: Page, name: str, card: str) -> int:
    kind = page["BY_COUNT"][name]
    windows = [one.window_number * kind.step for one in page["full"][name] if one.card == card]
    return max(lanes([(begin, begin + kind.length) for begin in windows]), default=0) + 1


def late(page: Page) -> str:
    """Event time against arrival: which payments are in time, which correct a result, which are late."""
    arrived: Sequence[Any] = page["ARRIVED"]
    start = page["START"]
    height, top, bottom = 420, 40, 380
    picture = Picture(WIDTH, height, "Late payments: event time against the order of arrival")
    step = (660 - 110) / len(arrived)
    last = start + timedelta(minutes=25)

    def y(time: Any) -> float:
        return float(bottom - (time - start) / (last - start) * (bottom - top))

    for minute in range(0, 30, 10):
        at = start + timedelta(minutes=minute)
        picture.line(100, y(at), 660, y(at), "grid", "thin")
        picture.text(90, y(at) + 5, f"{at:%H:%M}", "muted", "end", "small")
    picture.text(20, 24, "event time", "muted", style="small")
    picture.text(380, 408, "order of arrival", "muted", "middle", "small")
    watermark, points = start, [(100.0, y(start))]
    verdicts = {(one.card, one.at): f"late by {one.late_by:.0f} s" for one in page["late"]}
    for number, payment in enumerate(arrived):
        x = 110 + (number + 0.5) * step
        watermark = max(watermark, payment.at)
        points.append((x, y(watermark)))
    picture.steps([*points, (660, points[-1][1])], "two")
    picture.text(655, points[-1][1] - 8, "watermark", "two", "end", "small")
    watermark = start
    for number, payment in enumerate(arrived):
        x = 110 + (number + 0.5) * step
        window_end = start + timedelta(minutes=10) * (1 + (payment.at - start) // timedelta(minutes=10))
        is_late = (payment.card, payment.at) in verdicts
        corrects = not is_late and window_end <= watermark
        colour = "bad" if is_late else "good" if corrects else "one"
        picture.dot(x, y(payment.at), colour, hollow=is_late)
        word = verdicts.get((payment.card, payment.at), "correction" if corrects else "")
        picture.text(x + 9, y(payment.at) + 16, word, colour, style="small")
        watermark = max(watermark, payment.at)
    picture.text(690, 40, "emitted", style="bold")
    for number, one in enumerate(page["corrected"]):
        text = f"{one.window_start:%H:%M} to {one.window_end:%H:%M}: {one.payments} payments"
        picture.text(690, 70 + number * 24, text, style="small")
    picture.text(690, 90 + len(page["corrected"]) * 24, "channel late", style="bold")
    for number, one in enumerate(page["late"]):
        y_late = 120 + (len(page["corrected"]) + number) * 24
        picture.text(690, y_late, f"{one.at:%H:%M}, late by {one.late_by:.0f} s", "bad", style="small")
    return picture.svg()


def _name(picture: Picture, top: float, window: Any) -> None:
    """The window as it is written in the page, in two lines."""
    given = ", ".join(json.dumps(value) for value in dataclasses.astuple(window))
    picture.text(20, top + 24, type(window).__name__, style="code")
    picture.text(20, top + 41, f"({given})", style="code")


def _ordinal(number: int) -> str:
    return f"{number}{({1: 'st', 2: 'nd', 3: 'rd'}).get(number, 'th')}"


def _height(count: int) -> int:
    return count * LANE + 16


def _grid(picture: Picture, axis: TimeAxis, bottom: float) -> None:
    at = axis.begin
    while at <= axis.end:
        picture.line(axis.x(at), 32, axis.x(at), bottom, "grid", "thin")
        picture.text(axis.x(at), 24, f"{at:%H:%M}", "muted", "middle", "small")
        at += timedelta(minutes=5)


def _payments(picture: Picture, axis: TimeAxis, page: Page) -> None:
    for place, (card, colour) in enumerate(CARDS.items()):
        y = 54 + place * 36
        picture.text(20, y + 5, f"card {card}", colour, style="bold")
        for payment in page["PAYMENTS"]:
            if payment.card == card:
                picture.dot(axis.x(payment.at), y, colour)
                picture.text(axis.x(payment.at), y + 20, f"{payment.euros}", colour, "middle", "small")


def _window(picture: Picture, x: float, to: float, y: float, window: Any, is_open: bool) -> None:
    colour = CARDS[window.card]
    picture.box(x + 1, y, to - x - 2, LANE - 5, colour, "dashed" if is_open else "")
    picture.text((x + to) / 2, y + 14, f"{window.payments}: {window.euros}", colour, "middle", "small")


def _legend(picture: Picture, y: float, text: str) -> None:
    picture.text(LEFT, y, text, "muted", style="small")
