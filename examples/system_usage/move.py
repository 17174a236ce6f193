"""Move the running job to another folder and another process, while transactions arrive, and check its numbers.

    python move.py                       # stop, copy the folder, start there
    python move.py --kill                # kill -9 instead of a stop
    python move.py --database stays      # the database is not in the folder: both processes write the same one

1. Start the job in `old/`, which holds the job file, its root `.streamwork/` and, unless it stays, its database.
2. Stop or kill it when it has counted some transactions.
3. Copy `old/` to `new/`, and start the job there. The copied root holds the job's uid: to the sink it is the same job.
4. When no more transactions arrive, compare the numbers with the transactions.

Exits with 1 if a number is wrong.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from usage.scene import Scene, truth
from usage.writers import TABLE

HERE = Path(__file__).parent
PATIENCE = 120.0
"""Seconds to wait for the job."""
Numbers = tuple[int, int, int]


class Feeder(threading.Thread):
    """Appends transactions, with their verdicts, until `stop`."""

    def __init__(self, scene: Scene, at_once: int = 20, pause: float = 0.05) -> None:
        super().__init__()
        self.count = 0
        self._scene, self._at_once, self._pause = scene, at_once, pause
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(self._pause):
            self._scene.add(range(self.count, self.count + self._at_once))
            self.count += self._at_once

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Place:
    """A folder with the job file. The job's root, and its database if the path is relative, are in it."""

    def __init__(self, folder: Path, data: Path, database: Path, mode: str = "local") -> None:
        self.folder = folder
        self.database = folder / database
        self._mode = mode
        self._environment = {**os.environ, "FRAUD_DATA": str(data), "USAGE_DB": str(database)}

    def start(self, *options: str) -> subprocess.Popen[str]:
        with (self.folder / "output.txt").open("a") as output:
            command = [sys.executable, "-m", "streamwork", "run", "job.py", "--mode", self._mode, *options]
            return subprocess.Popen(
                command, cwd=self.folder, env=self._environment, stdout=output, stderr=subprocess.STDOUT, text=True
            )

    @contextmanager
    def running(self, *options: str) -> Generator[subprocess.Popen[str], None, None]:
        """The job runs in the block, and is killed after it."""
        with self.start(*options) as process:
            try:
                yield process
            finally:
                process.kill()

    def numbers(self) -> Numbers:
        """The numbers in the database: transactions, fraudulent, unknown."""
        try:
            with closing(sqlite3.connect(f"{self.database.absolute().as_uri()}?mode=ro", uri=True, timeout=30)) as db:
                found = db.execute(f"SELECT transactions, fraudulent, unknown FROM {TABLE}").fetchone()
        except sqlite3.OperationalError:  # it does not exist yet
            found = None
        return found or (0, 0, 0)

    def wait(self, process: subprocess.Popen[str], condition: Callable[[Numbers], bool]) -> Numbers:
        """Wait until the job's numbers meet the condition."""
        until = time.monotonic() + PATIENCE
        while not condition(found := self.numbers()):
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the job has counted {found}\n{(self.folder / 'output.txt').read_text()}")
            time.sleep(0.05)
        return found

    def move(self, folder: Path) -> "Place":
        """Copy all files to another folder."""
        shutil.copytree(self.folder, folder)
        moved = Place(folder, Path(self._environment["FRAUD_DATA"]), Path(self._environment["USAGE_DB"]), self._mode)
        (folder / "output.txt").unlink()
        return moved


@dataclass(frozen=True)
class Moved:
    """The numbers when the job was moved, those at the end, and those that the transactions give."""

    at_the_move: Numbers
    found: Numbers
    expected: Numbers

    @property
    def exact(self) -> bool:
        return self.found == self.expected and 0 < self.at_the_move[0] < self.expected[0]


def first_place(folder: Path, database: str = "moves", mode: str = "local") -> Place:
    """A copy of the example in `old/`."""
    old = folder / "old"
    old.mkdir()
    shutil.copy(HERE / "job.py", old)
    shutil.copytree(HERE / "usage", old / "usage", ignore=shutil.ignore_patterns("__pycache__"))
    return Place(old, folder / "data", Path("usage.db") if database == "moves" else folder / "usage.db", mode)


def drill(folder: Path, kill: bool = False, database: str = "moves", mode: str = "local", enough: int = 200) -> Moved:
    feeder = Feeder(Scene(folder / "data"))
    old = first_place(folder, database, mode)
    feeder.start()
    try:
        with old.running() as process:  # 1
            old.wait(process, lambda found: found[0] >= enough)
            (process.kill if kill else process.terminate)()  # 2: SIGTERM is a clean stop, as `streamwork stop` is
            process.wait(PATIENCE)
        at_the_move = old.numbers()
        new = old.move(folder / "new")  # 3
        with new.running() as process:
            new.wait(process, lambda found: found[0] >= at_the_move[0] + enough)
            feeder.stop()
            found = new.wait(process, lambda found: found[0] >= feeder.count)  # 4
            process.terminate()
            process.wait(PATIENCE)
            found = new.numbers()
    finally:
        feeder.stop()
    return Moved(at_the_move, found, truth(feeder.count))


def main() -> int:
    parser = argparse.ArgumentParser(description="Move the running job to another folder and process.")
    parser.add_argument("--kill", action="store_true", help="kill -9 instead of a clean stop")
    parser.add_argument("--database", choices=["moves", "stays"], default="moves")
    parser.add_argument("--mode", choices=["local", "microbatch"], default="local")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        moved = drill(Path(folder), options.kill, options.database, options.mode)
    if options.json:
        print(json.dumps({**asdict(moved), "exact": moved.exact}))
    else:
        print("transactions, fraudulent, unknown")
        print(f"  at the move   {moved.at_the_move}\n  at the end    {moved.found}\n  expected      {moved.expected}")
    return 0 if moved.exact else 1


if __name__ == "__main__":
    sys.exit(main())
