"""What breaks: a pattern over what happens, or a file that goes bad."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from crashes import Crash


@dataclass(frozen=True)
class Fault:
    """Ends a life where something fits `at` for the n-th time. `dead`: like kill -9, nothing reaches the disk any more."""

    at: str
    nth: int = 1
    error: type[BaseException] = Crash
    dead: bool = False

    def strike(self) -> BaseException:
        return OSError(errno.ENOSPC, "no space left") if self.error is OSError else self.error(self.at)


HOW = ("truncated", "flipped", "missing")


def damage(path: Path, how: str) -> None:
    """The ways in which a file goes bad."""
    data = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "truncated":
        path.write_bytes(data[: len(data) // 2])
    elif how == "flipped":
        data, middle = data or b"x", len(data) // 2
        path.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
    else:
        raise AssertionError(how)
