"""What a join gives, and what is refused when it is built."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest

from streamwork import Digits, Event, Job, ListSource, Lookup, StaticTable, Table, WrongUse
from streamwork.components.schema import fields_of


class Click(Event):
    user: str
    at: datetime
    page: int


class Purchase(Event):
    user: str
    at: datetime
    price: Annotated[Decimal, Digits(10, 2)]


class Account(Event):
    login: str
    at: datetime
    page: str


class Plain(Event):
    user: int
    note: str


class Streams:
    """A job with a stream of each kind."""

    def __init__(self) -> None:
        self.job = Job("joins")
        self.clicks = self.job.source(ListSource([], Click), id="clicks", time="at")
        self.purchases = self.job.source(ListSource([], Purchase), id="purchases", time="at")
        self.accounts = self.job.source(ListSource([], Account), id="accounts", time="at")
        self.untimed = self.job.source(ListSource([], Plain), id="untimed")
        self.timeless = self.job.source(ListSource([], Purchase), id="timeless")


@pytest.fixture
def streams() -> Streams:
    return Streams()


def shown(event: type[Event]) -> dict[str, str]:
    return {name: f"{field.name}{' | None' if field.nullable else ''}" for name, field in fields_of(event).items()}


def names(stream: Any) -> list[str]:
    """The fields of the events of a stream; a question mark behind those that may be null."""
    return [f"{name}?" if field.nullable else name for name, field in fields_of(stream.event).items()]


def test_the_result_has_the_fields_of_both_sides(streams):
    joins = {
        how: streams.clicks.join(streams.purchases, key="user", within="30min", how=how, id=how)
        for how in ("inner", "left", "right", "full")
    }
    assert names(joins["inner"]) == ["user", "at", "page", "purchases_at", "price"]
    assert names(joins["left"]) == ["user", "at", "page", "purchases_at?", "price?"]
    assert names(joins["right"]) == ["user", "at?", "page?", "purchases_at", "price"]
    assert names(joins["full"]) == ["user", "at?", "page?", "purchases_at?", "price?"]


def test_a_key_with_another_name_stays(streams):
    joined = streams.clicks.join(streams.accounts, key="user", other_key="login", within=60, how="full", id="named")
    assert names(joined) == ["user?", "at?", "page?", "login?", "accounts_at?", "accounts_page?"]


def test_several_tables(streams):
    tables = [s.table(key=key, id=id) for s, key, id in (
        (streams.purchases, "user", "quotes"), (streams.accounts, "login", "old-accounts"),
    )]  # fmt: skip
    joined = streams.clicks.join(*tables, key="user", how="left", id="both")
    expected = ["user", "at", "page", "quotes_at?", "price?", "login?", "old_accounts_at?", "old_accounts_page?"]
    assert names(joined) == expected
    assert isinstance(tables[0], Table)
    assert tables[0].id == "quotes"


def test_a_type_is_filled_by_name(streams):
    class Attributed(Event):
        price: Annotated[Decimal, Digits(10, 2)] | None
        user: str
        purchases_at: datetime | None

    joined = streams.clicks.join(streams.purchases, key="user", within=5, how="left", to=Attributed, id="attributed")
    assert joined.event is Attributed
    kept = streams.job._nodes["attributed"].keeps
    # What the result has not is not kept.
    assert list(kept.__struct_fields__) == ["matched", "join_watermark", "right_price"]


def refused(code: str, text: str) -> Any:
    return pytest.raises(WrongUse, match=f"{code}: .*{text}")


def test_a_type_that_does_not_fit_is_refused(streams):
    class Unknown(Event):
        who: str

    class Wrong(Event):
        price: float

    class Required(Event):
        price: Annotated[Decimal, Digits(10, 2)]

    def join(to: type[Event]) -> Any:
        return streams.clicks.join(streams.purchases, key="user", within=5, how="left", to=to, id="joined")

    with refused("SW-JOIN-FIELD", "Unknown.who is not a field of the result"):
        join(Unknown)
    with refused("SW-JOIN-FIELD", "Wrong.price is float, but 'price' of purchases is optional Decimal"):
        join(Wrong)
    with refused("SW-JOIN-FIELD", "Required.price is .* is optional Decimal"):
        join(Required)


def test_names_that_clash_twice_are_refused(streams):
    class Strange(Event):
        user: str
        page: int
        purchases_at: int
        at: datetime

    strange = streams.job.source(ListSource([], Strange), id="strange", time="at")
    with refused("SW-JOIN-FIELD", "both strange and purchases have a field for 'purchases_at'"):
        strange.join(streams.purchases, key="user", within=5, id="joined")


def test_join_fields_of_different_types_are_refused(streams):
    table = pa.table({"user": [1], "name": ["a"]})
    for others, more in (
        ((streams.untimed.table(key="user", id="table"),), {}),
        ((streams.untimed,), {"within": 5}),
        ((table,), {}),
        ((Lookup(Plain, key="user", fetch=print),), {}),
    ):
        with refused("SW-KEY-TYPE", r"the key of clicks is user \(string\), that of .* is user \(int64\)"):
            streams.clicks.join(*others, key="user", id="joined", **more)


def test_an_unbounded_join_of_two_streams_is_refused(streams):
    with refused("SW-JOIN-UNBOUNDED", "join 'joined' of clicks and purchases has no bound"):
        streams.clicks.join(streams.purchases, key="user", id="joined")


def test_event_time_is_needed_for_bounds_and_versions(streams):
    with refused("SW-JOB-TIME", "goes by event time, but the source 'timeless', which it reads from, has none"):
        streams.clicks.join(streams.timeless, key="user", within=5, id="joined")
    table = streams.timeless.table(key="user", id="table")
    with refused("SW-JOB-TIME", "join 'joined' goes by event time, but table has none"):
        streams.clicks.join(table, key="user", as_of="at", id="joined")
    with refused("SW-JOB-TIME", "goes by event time, but timeless has none"):
        streams.timeless.join(streams.clicks.table(key="user", id="c"), key="user", as_of="at", id="joined")
    with refused("SW-JOB-TIME", "history= or lateness="):
        streams.timeless.table(key="user", history="1h", id="other")


def test_behind_a_map_the_time_field_is_named(streams):
    class Renamed(Event):
        user: str
        when: datetime
        maybe: datetime | None

    renamed = streams.clicks.map(lambda click: Renamed(click.user, click.at, None), to=Renamed)
    with refused("SW-JOB-TIME", "a step before it makes new events"):
        renamed.join(streams.purchases, key="user", within=5, id="joined")
    with refused("SW-JOB-TIME", "Renamed has no datetime field 'maybe'"):
        renamed.join(streams.purchases, key="user", within=5, time="maybe", other_time="at", id="joined")
    assert renamed.join(streams.purchases, key="user", within=5, time="when", other_time="at", id="joined") is not None
    with refused("SW-JOB-TIME", "a step before it makes new events"):
        renamed.join(streams.purchases.table(key="user", id="p"), key="user", id="versions")
    renamed.join(streams.accounts.table(key="login", id="q"), key="user", as_of="when", id="versions")


def test_kinds_of_joins(streams):
    with refused("SW-JOIN-HOW", "how='outer' is not a kind of join"):
        streams.clicks.join(streams.purchases, key="user", within=5, how="outer", id="joined")
    tables = [streams.purchases.table(key="user", id=f"p{n}") for n in range(2)]
    untimed = streams.timeless.table(key="user", id="newest")
    for how in ("right", "full"):
        with refused("SW-JOIN-HOW", "table 'newest', which is joined on arrival, has no time at which one of its rows"):
            streams.clicks.join(untimed, key="user", how=how, id="joined")
        with refused("SW-JOIN-HOW", "a join with several tables has no time at which"):
            streams.clicks.join(*tables, key="user", how=how, id="joined")
        with refused("SW-JOIN-HOW", "table 'static'"):
            streams.clicks.join(pa.table({"user": ["a"]}), key="user", how=how, id="joined")
    assert names(streams.clicks.join(tables[0], key="user", how="full", id="joined")) == [
        "user", "at?", "page?", "p0_at?", "price?",
    ]  # fmt: skip


def test_arguments_without_meaning_are_refused(streams):
    table = streams.purchases.table(key="user", id="table")
    with refused("SW-JOIN-ARGUMENT", "within= has no meaning here"):
        streams.clicks.join(table, key="user", within=5, id="joined")
    with refused("SW-JOIN-ARGUMENT", "as_of= has no meaning here"):
        streams.clicks.join(streams.purchases, key="user", within=5, as_of="at", id="joined")
    with refused("SW-JOIN-ARGUMENT", "lateness= has no meaning here"):
        streams.clicks.join(StaticTable(pa.table({"user": ["a"]})), key="user", lateness=5, id="joined")
    with refused("SW-JOIN-ARGUMENT", "lateness= has no meaning here"):
        streams.clicks.join(streams.timeless.table(key="user", id="newest"), key="user", lateness=5, id="joined")


def test_sides_that_cannot_be_joined_in_one_step_are_refused(streams):
    table = streams.purchases.table(key="user", id="table")
    with refused("SW-JOIN-SIDES", "join 'joined' has one side"):
        streams.clicks.join(key="user", id="joined")
    for others in (
        (table, pa.table({"user": ["a"]})),
        (streams.purchases, table),
        (streams.purchases, streams.accounts),
    ):
        with refused("SW-JOIN-SIDES", "join 'joined' mixes"):
            streams.clicks.join(*others, key="user", within=5, id="joined")
    with refused("SW-JOIN-SIDES", "names a table twice"):
        streams.clicks.join(table, table, key="user", id="joined")
    with refused("SW-JOB-EDGE", "belongs to job 'joins'"):
        Streams().clicks.join(streams.purchases, key="user", within=5, id="joined")


def test_a_join_that_accepts_more_than_its_table_keeps_is_refused(streams):
    table = streams.purchases.table(key="user", history="1min", id="table")
    with refused("SW-JOIN-HISTORY", "61 s late, but a table of it keeps versions for 60 s only"):
        streams.clicks.join(table, key="user", lateness="61s", id="joined")
    streams.clicks.join(table, key="user", lateness="1min", id="joined")


def test_a_bound_that_is_no_duration_is_refused(streams):
    with refused("SW-JOB-SETTING", "'soon' is not a duration"):
        streams.clicks.join(streams.purchases, key="user", within="soon", id="joined")
    with refused("SW-JOB-SETTING", "longer than event time"):
        streams.clicks.join(streams.purchases, key="user", within="9999999d", id="joined")
    streams.clicks.join(streams.purchases, key="user", within="3650000d", id="joined")


def test_a_field_of_the_state_clashes_with_the_key():
    class Odd(Event):
        join_time: str
        at: datetime

    job = Job("odd")
    odd = job.source(ListSource([], Odd), id="odd", time="at")
    with refused("SW-KEY-CLASH", "join_time"):
        odd.join(odd.table(key="join_time", id="table"), key="join_time", id="joined")
    with refused("SW-KEY-CLASH", "join_time"):
        odd.join(odd, key="join_time", within=5, id="itself")


def test_a_stream_is_joined_with_itself(streams):
    joined = streams.clicks.join(streams.clicks, key="user", within=5, id="pairs")
    assert names(joined) == ["user", "at", "page", "clicks_at", "clicks_page"]


def test_without_event_time_nothing_is_kept_by_the_join(streams):
    table = streams.timeless.table(key="user", id="table")
    streams.clicks.join(table, key="user", id="joined")
    assert streams.job._nodes["joined"].keeps is None
    assert shown(streams.job._nodes["table"].keeps) == {
        "at": "datetime with a time zone, in UTC from year 1 to 9999 | None",
        "price": "Decimal(10, 2) | None",
    }
