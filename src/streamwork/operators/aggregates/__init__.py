"""Aggregates of windows: functions for the built-in ones, and the base class `Aggregate` for a user's own.

In columns from end to end: a batch is reduced to partial aggregates (`ColumnAggregate.partial`), these are merged, and results are
made of the merged ones. Nothing here knows windows.
"""

from streamwork.operators.aggregates.base import ColumnAggregate, Unbound
from streamwork.operators.aggregates.custom import Aggregate
from streamwork.operators.aggregates.distinct import Distinct
from streamwork.operators.aggregates.extremes import Extreme
from streamwork.operators.aggregates.numbers import Count, Mean, Sum
from streamwork.operators.aggregates.ordered import Collect, End
from streamwork.operators.aggregates.sketches import ApproxDistinct, Quantile


def count(field: str | None = None) -> Unbound:
    """The number of events; with a field, of those where it is not null."""
    return Count(field)


def sum_of(field: str) -> Unbound:
    """The sum of an int, float or Decimal field. Ints and Decimals are added exactly, and an overflow is an error."""
    return Sum(field)


def mean_of(field: str) -> Unbound:
    """The mean of an int, float or Decimal field, as a float."""
    return Mean(field)


def min_of(field: str) -> Unbound:
    """The smallest value of a field."""
    return Extreme(field, largest=False)


def max_of(field: str) -> Unbound:
    """The largest value of a field. NaN is larger than every number."""
    return Extreme(field, largest=True)


def first_of(field: str) -> Unbound:
    """The value of a field in the event that arrived first. It depends on cuts if a key comes from several partitions."""
    return End(field, last=False)


def last_of(field: str) -> Unbound:
    """The value of a field in the event that arrived last; as `first_of`."""
    return End(field, last=True)


def collect_of(field: str) -> Unbound:
    """All values of a field, as a list, in the order of arrival; as `first_of`."""
    return Collect(field)


def distinct_of(field: str) -> Unbound:
    """The number of distinct values of a field, exactly. The state holds all of them."""
    return Distinct(field)


def approx_distinct_of(field: str) -> Unbound:
    """About how many distinct values a field has: exact up to 4,096, then about 1.6 % off. Needs the extra `sketches`."""
    return ApproxDistinct(field)


def quantile_of(field: str, fraction: float) -> Unbound:
    """About the value below which a fraction of the values of a field is: 0.5 is the median. Needs the extra `sketches`."""
    return Quantile(field, fraction)


__all__ = [
    "Aggregate",
    "ColumnAggregate",
    "Unbound",
    "approx_distinct_of",
    "collect_of",
    "count",
    "distinct_of",
    "first_of",
    "last_of",
    "max_of",
    "mean_of",
    "min_of",
    "quantile_of",
    "sum_of",
]
