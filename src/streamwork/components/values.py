"""`Event` and `Record`: the types of what flows and of state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, dataclass_transform

import msgspec


@dataclass_transform(
    frozen_default=True, field_specifiers=(msgspec.field,)
)  # subclasses are frozen to type checkers too
class Event(msgspec.Struct, frozen=True, gc=False):
    """An event: frozen and typed.

    The annotated fields are its Arrow schema, so they must be types that Arrow knows (see `schema`).
    Constructors check nothing, for speed; values are checked where events enter a job and where Arrow is built.
    """

    renamed_from: ClassVar[Mapping[str, str]] = {}
    """Field -> the name that it had. Stored state follows a key field to its new name."""


class Record(msgspec.Struct, gc=False):
    """State: mutable and typed; its fields are the columns of the state files.

    Every field needs a default: a record is created when its key is first seen.

    Stored rows follow the class when it changes: a new field has its default, a field may become optional, a Decimal may get more
    digits. `renamed_from` names fields that were renamed. For any other change, raise `schema_version` and define `migrate`::

        class Totals(Record):
            schema_version: ClassVar[int] = 2
            euros: Annotated[Decimal, Digits(18, 2)] = Decimal(0)

            @classmethod
            def migrate(cls, row: dict[str, Any], version: int) -> "Totals":
                return cls(euros=Decimal(row["cents"]) / 100)

    `row` has the stored values by column, those of the key included; `version` is the version that wrote it. A start calls it for
    every row, once, and rewrites the state before it reads any input.
    """

    schema_version: ClassVar[int] = 1

    renamed_from: ClassVar[Mapping[str, str]] = {}
    """Field -> the name that it had."""


class Digits(msgspec.Struct, frozen=True):
    """Precision and scale of a Decimal field: ``price: Annotated[Decimal, Digits(12, 2)]``."""

    precision: int
    scale: int
