"""Work in a thread that the end of the process does not wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


async def in_daemon(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(what: Callable[[Any], None], value: Any) -> None:
        if not done.done():
            what(value)

    def run() -> None:
        try:
            found = work()
        except BaseException as error:
            _tell(loop, settle, done.set_exception, error)
        else:
            _tell(loop, settle, done.set_result, found)

    threading.Thread(target=run, name="streamwork-action", daemon=True).start()
    return await done


def _tell(loop: asyncio.AbstractEventLoop, *call: Any) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(*call)
