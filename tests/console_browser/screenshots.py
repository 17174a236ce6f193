"""The pictures of docs/console.md, of jobs that run while they are taken.

    (cd tests; PYTHONPATH=. python -m console_browser.screenshots)      writes docs/images/console-*.webp

They show real figures of one run, so they differ from run to run; look at them before you keep them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from console.console_world import Served, showing
from console_browser.chromium import arguments, chromium
from console_browser.tab import PATIENCE, Tab
from waiting import wait_for

REPO = Path(__file__).parents[2]
IMAGES = REPO / "docs" / "images"
FOLDER = Path("/tmp/shop")
"""The pictures show this path."""
QUALITY = 0.85
EPOCHS = 32
SECONDS = 60
"""The timeline shows this many epochs, or those of this many seconds if they take longer."""
SETTLEMENTS = """
import time

from streamwork import Event, Job, JsonLines, KeyedOperator, Operator, Record, SqliteSink


class Payment(Event):
    id: str
    merchant: str
    amount: float


class Settled(Event):
    merchant: str
    payments: int
    total: float


class Alert(Event):
    merchant: str
    amount: float


class Totals(Record):
    payments: int = 0
    total: float = 0.0


class PerMerchant(KeyedOperator[Payment, Totals, Settled]):
    def apply(self, event, state, collector):
        state.payments += 1
        state.total += event.amount
        collector.emit(Settled(event.merchant, state.payments, state.total))


class Large(Operator[Payment, Alert]):
    def apply(self, event, collector):
        time.sleep(0.001)  # a slow service
        if event.amount > 95:
            collector.emit(Alert(event.merchant, event.amount))


job = Job("settlements", parallelism=2)
payments = job.source(JsonLines("payments.jsonl", Payment), id="payments")
settled = payments.apply(PerMerchant(), key="merchant", id="per-merchant")
settled.sink(SqliteSink("settled.db", "settled", key="merchant"), id="settled")
payments.apply(Large(), id="large").sink(SqliteSink("alerts.db", "alerts"), id="alerts")
"""
SHOTS = {  # name -> size, colours, place, what must be visible
    "overview": (1280, 640, "light", "", ".jobs"),
    "job": (1280, 1190, "light", "jobs/settlements", "#epochs .bar-link"),
    "job-dark": (1280, 1190, "dark", "jobs/settlements", "#epochs .bar-link"),
    "checkpoint": (1280, 1240, "light", "jobs/settlements/explain/{epoch}?row=3", ".epoch-steps .kill"),
    "narrow": (400, 1000, "dark", "jobs/settlements", "#epochs .bar-link"),
}
TO_WEBP = """async ([png, quality]) => {
    const image = new Image();
    image.src = png;
    await image.decode();
    const canvas = new OffscreenCanvas(image.width, image.height);
    canvas.getContext("2d").drawImage(image, 0, 0);
    const bytes = new Uint8Array(await (await canvas.convertToBlob({type: "image/webp", quality})).arrayBuffer());
    return btoa(Array.from(bytes, one => String.fromCharCode(one)).join(""));
}"""


class Feeder(threading.Thread):
    """Appends events to a file, some hundred a second, until it is stopped."""

    def __init__(self, path: Path, field: str, per_second: int) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self._path, self._field, self._each = path, field, per_second // 5

    def run(self) -> None:
        rng, number = random.Random(7), 0
        while not self.ended.wait(0.2):
            with self._path.open("a") as file:
                for _ in range(self._each):
                    number += 1
                    amount = round(rng.uniform(1, 100), 2)
                    event = {"id": f"t{number}", self._field: f"{self._field}-{int(rng.paretovariate(1.2)) % 400:03d}"}
                    file.write(json.dumps({**event, "amount": amount}) + "\n")


def start(folder: Path, job: str, *options: str) -> subprocess.Popen[bytes]:
    program = Path(sys.executable).parent / "streamwork"
    with (folder / f"{Path(job).stem}.log").open("wb") as log:
        return subprocess.Popen(
            [program, "run", job, "--mode", "local", "--root", ".streamwork", *options],
            cwd=folder,
            stdout=log,
            stderr=log,
        )


def begun(folder: Path, job: str, stack: contextlib.ExitStack) -> subprocess.Popen[bytes]:
    """A job that goes on until the stack ends, and has a history."""
    process = start(folder, job, "--checkpoint-every", "1s", "--retain", "60")
    stack.callback(process.wait)
    stack.callback(process.kill)
    history = folder / ".streamwork" / Path(job).stem.replace("_", "-") / "history.sqlite"
    wait_for(history.exists, process, folder / f"{Path(job).stem}.log", PATIENCE)
    return process


def await_epochs(served: Served, process: subprocess.Popen[bytes], epochs: int) -> None:
    until = time.monotonic() + SECONDS
    wait_for(
        lambda: time.monotonic() > until or served.get("/api/jobs/settlements/epochs")["kept"] >= epochs,
        process,
        seconds=SECONDS + PATIENCE,
    )


def take(folder: Path) -> None:
    (folder / "settlements.py").write_text(SETTLEMENTS)
    for name in ("card_usage.py", "emission.py", "sensor_alerts.py"):
        (folder / name).write_text((REPO / "examples" / name).read_text())
    for path in (REPO / "examples").glob("*.jsonl"):
        (folder / path.name).write_text(path.read_text())
    feeders = [Feeder(folder / "payments.jsonl", "merchant", 700), Feeder(folder / "transactions.jsonl", "card", 400)]
    for name in ("payments", "transactions"):
        (folder / f"{name}.jsonl").touch()
    with contextlib.ExitStack() as stack:
        start(folder, "emission.py", "--until-caught-up").wait(PATIENCE)
        killed = start(folder, "sensor_alerts.py")
        for feeder in feeders:
            feeder.start()
            stack.callback(feeder.ended.set)
        for job in ("card_usage.py", "settlements.py"):
            process = begun(folder, job, stack)
        killed.kill()
        killed.wait()
        with showing(folder / ".streamwork", allow_actions=True) as served:
            await_epochs(served, process, EPOCHS // 2)
            process.kill()
            process.wait()
            await_epochs(served, begun(folder, "settlements.py", stack), EPOCHS)
            photograph(served)


def photograph(served: Served) -> None:
    epoch = served.get("/api/jobs/settlements")["status"]["checkpoint"] - 2
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=arguments())
        developer = browser.new_page()
        for name, (width, height, scheme, place, shown) in SHOTS.items():
            with Tab.opened(browser, width, scheme) as tab:
                tab.page.set_viewport_size({"width": width, "height": height})
                tab.enter(served, place.format(epoch=epoch))
                expect(tab.page.locator(shown).first).to_be_visible(timeout=PATIENCE * 1000)
                tab.page.evaluate("scrollTo(0, 0); document.fonts.ready.then(() => true)")
                png = base64.b64encode(tab.page.screenshot(animations="disabled")).decode()
                assert tab.problems == []
            webp = developer.evaluate(TO_WEBP, [f"data:image/png;base64,{png}", QUALITY])
            (IMAGES / f"console-{name}.webp").write_bytes(base64.b64decode(webp))
        browser.close()


if __name__ == "__main__":
    FOLDER.mkdir()
    try:
        take(FOLDER)
    finally:
        shutil.rmtree(FOLDER)
