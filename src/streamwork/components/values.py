"""`Event` and `Record`: the types of what flows and of state."""

from __future__ import annotations

from typing import dataclass_transform

import msgspec


@dataclass_transform(
    frozen_default=True, field_specifiers=(msgspec.field,)
)  # subclasses are frozen to type checkers too
class Event(msgspec.Struct, frozen=True, gc=False):
    """An event: frozen and typed.

    The annotated fields are its Arrow schema, so they must be types that Arrow knows (see `schema`).
    Constructors check nothing, for speed; values are checked where events enter a job and where Arrow is built.
    """


class Record(msgspec.Struct, gc=False):
    """State: mutable and typed; its fields are the columns of the state files.

    Every field needs a default: a record is created when its key is first seen.
    """


class Digits(msgspec.Struct, frozen=True):
    """Precision and scale of a Decimal field: ``price: Annotated[Decimal, Digits(12, 2)]``."""

    precision: int
    scale: int
