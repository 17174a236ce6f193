"""Checks that the columns of a file convert to the fields of an event without loss."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pyarrow.types as at

from streamwork.components.schema import arrow_schema


def misfit_of(file: pa.Schema, event: type[msgspec.Struct]) -> str:
    """The first column that is missing or does not fit; empty if all fit."""
    for wanted in arrow_schema(event):
        places = file.get_all_field_indices(wanted.name)
        if len(places) != 1:
            there = f"{len(places)} columns are named" if places else "no column"
            return f"{there} {wanted.name!r} (columns: {', '.join(file.names)})"
        found = file.field(places[0])
        if not fits(found.type, wanted.type):
            return f"column {wanted.name!r} is {found.type}, which does not fit {event.__name__}.{wanted.name} ({wanted.type})"
    return ""


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """True if a cast from `found` to `wanted` loses nothing, or raises where it would.

    The latter are uint64 to int64, and nanoseconds to microseconds: most such columns lose nothing.
    """
    if found == wanted or at.is_null(found):
        return True
    if at.is_dictionary(found):
        return fits(found.value_type, wanted)
    if at.is_integer(wanted):
        return bool(at.is_integer(found))
    if at.is_floating(wanted):
        return bool(at.is_floating(found) or (at.is_integer(found) and found.bit_width <= 32))
    if at.is_string(wanted):
        return bool(at.is_large_string(found) or at.is_string_view(found))
    if at.is_binary(wanted):
        return bool(at.is_large_binary(found) or at.is_binary_view(found) or at.is_fixed_size_binary(found))
    if at.is_timestamp(wanted):
        return bool(at.is_timestamp(found) and found.tz is not None)  # a timestamp without a zone is ambiguous
    if at.is_decimal(wanted):
        whole = found.precision - found.scale if at.is_decimal(found) else 0
        return bool(at.is_decimal(found) and found.scale <= wanted.scale and whole <= wanted.precision - wanted.scale)
    return _nested_fits(found, wanted)


def _nested_fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    if at.is_map(wanted):
        return bool(
            at.is_map(found) and fits(found.key_type, wanted.key_type) and fits(found.item_type, wanted.item_type)
        )
    if at.is_list(wanted):
        is_list = at.is_list(found) or at.is_large_list(found) or at.is_fixed_size_list(found)
        return bool(is_list and fits(found.value_type, wanted.value_type))
    if at.is_struct(wanted) and at.is_struct(found):
        return all(
            found.get_field_index(child.name) >= 0 and fits(found.field(child.name).type, child.type)
            for child in wanted
        )
    return False
