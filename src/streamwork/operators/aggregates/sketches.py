"""Approximate aggregates: sketches of Apache DataSketches, kept as bytes in its own format. They need the extra `sketches`.

approx_distinct_of   a theta sketch: exact up to 4,096 values, then about 1.6 % off; a function of the set of values
quantile_of          a t-digest: about 0.5 % off in rank in the middle, less at the ends; its last digits depend on the order
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamwork.components import Event
from streamwork.components.columns import python_values
from streamwork.components.field_types import FieldType
from streamwork.errors import WrongUse
from streamwork.operators.aggregates.base import ColumnAggregate, Unbound, operand, unfit, wrong_field
from streamwork.operators.aggregates.columns import Array, Groups, Parts
from streamwork.operators.aggregates.distinct import SCALARS, distinct_values

_LG_K = 12
_TDIGEST_K = 200


@dataclass(frozen=True)
class ApproxDistinct(Unbound):
    """About how many distinct values a field has."""

    field: str

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        what = f"approx_distinct_of({self.field!r})"
        _, found = operand(event, self.field, what)
        if found.arrow.num_fields:
            raise unfit(event, self.field, what, SCALARS)
        _library(what)
        return _ThetaSketches(name, self.field, found)


class _Sketches(ColumnAggregate):
    """Sketches as bytes."""

    def __init__(self, name: str, field: str, found: FieldType) -> None:
        self.name, self._field, self._found = name, field, found
        self.columns = {name: (bytes | None, None)}

    def _merged(self, sketches: Iterable[bytes | None]) -> bytes | None:
        raise NotImplementedError

    def merge(self, left: Parts, right: Parts) -> Parts:
        both = zip(left[self.name].to_pylist(), right[self.name].to_pylist(), strict=True)
        return {self.name: pa.array([self._merged(pair) for pair in both], pa.binary())}

    def combine(self, parts: Parts, groups: Groups) -> Parts:
        sketches = parts[self.name].take(pa.array(groups.order)).to_pylist()
        return {self.name: pa.array([self._merged(sketches[a:b]) for a, b in _spans(groups)], pa.binary())}


class _ThetaSketches(_Sketches):
    result_type = int

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        library = _library("")
        values, codes = distinct_values(batch.column(self._field), groups.codes)
        ends = np.searchsorted(codes, np.arange(groups.count + 1))
        hashable = _hashable(self._found, values)
        made = []
        for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            sketch = library.update_theta_sketch(_LG_K)
            for value in hashable[a:b]:
                sketch.update(value)
            sketch.trim()
            made.append(sketch.compact().serialize())
        return {self.name: pa.array(made, pa.binary())}

    def _merged(self, sketches: Iterable[bytes | None]) -> bytes | None:
        library = _library("")
        union = library.theta_union(_LG_K)
        for sketch in sketches:
            if sketch is not None:
                union.update(library.compact_theta_sketch.deserialize(sketch))
        merged: bytes = union.get_result().serialize()
        return merged

    def result(self, parts: Parts) -> pa.Array:
        read = _library("").compact_theta_sketch.deserialize
        found = [0 if sketch is None else round(read(sketch).get_estimate()) for sketch in parts[self.name].to_pylist()]
        return pa.array(found, pa.int64())


@dataclass(frozen=True)
class Quantile(Unbound):
    """About the value that a fraction of all values is at or below."""

    field: str
    fraction: float

    def bind(self, event: type[Event], name: str, interleaved: bool) -> ColumnAggregate:
        what = f"quantile_of({self.field!r}, {self.fraction!r})"
        if isinstance(self.fraction, bool) or not isinstance(self.fraction, int | float) or not 0 <= self.fraction <= 1:
            raise wrong_field(f"{what}: {self.fraction!r} is not a fraction", "use a number from 0 to 1, such as 0.95")
        _, found = operand(event, self.field, what)
        if found.arrow not in (pa.int64(), pa.float64()):
            raise unfit(event, self.field, what, "int or float")
        _library(what)
        return _Digests(name, self.field, found, self.fraction)


class _Digests(_Sketches):
    def __init__(self, name: str, field: str, found: FieldType, fraction: float) -> None:
        super().__init__(name, field, found)
        self._fraction = float(fraction)
        self.result_type = float | None if found.nullable else float

    def partial(self, batch: pa.RecordBatch, groups: Groups) -> Parts:
        library = _library("")
        column = batch.column(self._field).take(pa.array(groups.order))
        numbers = column.cast(pa.float64(), safe=False).fill_null(np.nan).to_numpy(zero_copy_only=False)
        made = []
        for a, b in _spans(groups):
            digest = library.tdigest_double(_TDIGEST_K)
            digest.update(_present(numbers[a:b]))
            made.append(digest.serialize())
        return {self.name: pa.array(made, pa.binary())}

    def _merged(self, sketches: Iterable[bytes | None]) -> bytes | None:
        library = _library("")
        merged = library.tdigest_double(_TDIGEST_K)
        for sketch in sketches:
            if sketch is not None:
                merged.merge(library.tdigest_double.deserialize(sketch))
        found: bytes = merged.serialize()
        return found

    def result(self, parts: Parts) -> pa.Array:
        read = _library("").tdigest_double.deserialize
        nothing = None if self._found.nullable else float("nan")
        digests = [None if sketch is None else read(sketch) for sketch in parts[self.name].to_pylist()]
        found = [nothing if d is None or d.is_empty() else d.get_quantile(self._fraction) for d in digests]
        return pa.array(found, pa.float64())


def _present(numbers: Array) -> Array:
    return np.ascontiguousarray(numbers[~np.isnan(numbers)])


def _spans(groups: Groups) -> Iterable[tuple[int, int]]:
    """Where each group begins and ends in the order of groups."""
    return zip(groups.starts.tolist(), (groups.starts + groups.sizes).tolist(), strict=True)


def _hashable(found: FieldType, values: pa.Array) -> list[Any]:
    """The values as ints, floats and text, which sketches take."""
    if pa.types.is_timestamp(values.type) or pa.types.is_boolean(values.type):
        return values.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_date32(values.type):
        return values.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    as_text: Callable[[Any], str] | None = None
    if pa.types.is_decimal(values.type):
        as_text = str
    elif pa.types.is_binary(values.type):
        as_text = _latin
    elif pa.types.is_string(values.type):
        as_text = "={}".format  # sketches ignore empty text
    plain = python_values(found, values)
    return list(plain) if as_text is None else [as_text(value) for value in plain]


def _latin(value: bytes) -> str:
    return "=" + value.decode("latin-1")


def _library(what: str) -> Any:
    try:
        import datasketches
    except ImportError:
        raise WrongUse(
            "SW-JOB-EXTRA", f"{what} needs the package datasketches", 'pip install "streamwork[sketches]"'
        ) from None
    return datasketches
