"""A job whose operator waits, once, until a file says that it may go on. Run by `streamwork run` in a folder of its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from streamwork import Event, Job, JsonLines, Operator, SqliteSink


class Line(Event):
    number: int


class Waiting(Operator[Line, Line]):
    def __init__(self, folder: str) -> None:
        self.folder = folder

    def apply(self, event: Line, collector: Any) -> None:
        (Path(self.folder) / "computing").touch()
        while not (Path(self.folder) / "go").exists():
            time.sleep(0.02)
        collector.emit(event)


HERE = Path(__file__).absolute().parent
job = Job("waiting", checkpoint_every=0)
lines = job.source(JsonLines(HERE / "lines.jsonl", Line), id="lines")
lines.apply(Waiting(str(HERE)), id="waiting").sink(SqliteSink(HERE / "out.db", "lines"), id="out")
