"""How verdicts write times, rates and commands."""

from __future__ import annotations

import math
import shlex
from datetime import UTC, datetime

from streamwork.observe.verdicts.signs import Signs


def clock(at: float, now: float) -> str:
    """A time of day; with the date, if that is another day."""
    moment, today = datetime.fromtimestamp(at, UTC), datetime.fromtimestamp(now, UTC)
    return f"{moment:%H:%M:%S} UTC" if moment.date() == today.date() else f"{moment:%Y-%m-%d %H:%M} UTC"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.0f} days"


def since(at: float, now: float) -> str:
    return f"since {clock(at, now)} ({duration(max(0.0, now - at))})"


def rate(per_second: float, unit: str) -> str:
    return f"{per_second:,.0f} {unit}/s" if per_second >= 10 else f"{per_second:.1f} {unit}/s"


def stop_command(signs: Signs) -> str:
    return shlex.join(["streamwork", "stop", "--root", signs.root, signs.job])


def interval_option(seconds: float) -> str:
    """The option that sets at least this interval: 100 ms, 200 ms, 500 ms, 1 s, 2 s, 5 s and so on."""
    power = 10 ** math.floor(math.log10(max(seconds, 0.1)))
    chosen = next(step * power for step in (1, 2, 5, 10) if step * power >= seconds - 1e-9)
    return f"--checkpoint-every {chosen:g}s" if chosen >= 1 else f"--checkpoint-every {chosen * 1000:g}ms"
