"""HTTP clients of the gateway that send a schedule, each on a connection of its own that is kept alive."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator

import msgspec

from .transaction import Transaction


def send_all(
    address: tuple[str, int], start: float, rate: float, transactions: list[Transaction], connections: int
) -> list[float | None]:
    """Send the n-th transaction at start + n / rate (monotonic). Returns the seconds from then to its answer; None: it failed.

    If all connections are busy, a transaction waits, and this time counts.
    """
    found: list[float | None] = [None] * len(transactions)
    numbers = iter(range(len(transactions)))
    lock = threading.Lock()

    def send() -> None:
        connection = http.client.HTTPConnection(*address, timeout=5)
        for number in _taken(numbers, lock):
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                connection.request("POST", "/transactions", msgspec.json.encode(transactions[number]))
                answer = connection.getresponse()
                answer.read()
                if answer.status == 200:
                    found[number] = time.monotonic() - due
            except (OSError, http.client.HTTPException):
                connection.close()  # the next request connects again
        connection.close()

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _taken(numbers: Iterator[int], lock: threading.Lock) -> Iterator[int]:
    """Numbers that this thread alone takes."""
    while True:
        with lock:
            number = next(numbers, None)
        if number is None:
            return
        yield number
