"""The planted truth: which transactions are fraud, in a file of JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from .generator import Kind, Planned


class Fraud(msgspec.Struct, frozen=True):
    """One line: a transaction that is fraud."""

    transaction: str
    kind: Kind


def write_truth(path: Path, planned: Iterable[Planned]) -> None:
    """Append the fraud among these transactions. Honest ones have no line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(Fraud(one.transaction.id, one.fraud)) for one in planned if one.fraud is not None]
    with path.open("ab") as file:
        file.writelines(line + b"\n" for line in lines)


def read_truth(path: Path) -> dict[str, Kind]:
    """Transaction -> kind of fraud."""
    found = (msgspec.json.decode(line, type=Fraud) for line in path.read_bytes().splitlines())
    return {fraud.transaction: fraud.kind for fraud in found}
