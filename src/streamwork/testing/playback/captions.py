"""What happens in a frame and why, in a sentence or two. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamwork.wording import plural


class Caption(NamedTuple):
    caption: str
    why: str


def started(resumed_at: int, life: int) -> Caption:
    if life == 1:
        return Caption(
            "The job starts, with empty state.", "There is no checkpoint yet: sources begin at the beginning."
        )
    if resumed_at == 0:
        return Caption(
            "The job starts again, with empty state.",
            "No checkpoint was completed or prepared before the crash: all input is read again.",
        )
    return Caption(
        f"The job starts again, from checkpoint {resumed_at}.",
        f"States and offsets are those of checkpoint {resumed_at}: what was read after it is read again.",
    )


def planned(epoch: int, slices: str) -> Caption:
    return Caption(
        f"The driver plans checkpoint {epoch}: {slices}.",
        "The plan is on disk before anything is read, so that its number is never used for other input.",
    )


def read(place: str, label: str, receivers: Sequence[str], epoch: int, keyed: bool) -> Caption:
    to = f" and sends it to {names(receivers)}" if receivers else ""
    owner = " The key decides which instance gets it." if keyed else ""
    return Caption(f"{place} reads {label}{to}.", f"It is in the slice of checkpoint {epoch}.{owner}")


def applied(
    place: str, label: str, sender: str, changes: Mapping[str, str], blocked: Sequence[str], epoch: int
) -> Caption:
    now = names([f"{key} is now {value}" for key, value in changes.items()]) if changes else "its state stays as it is"
    why = f"It came before the checkpoint event on its channel, so it belongs to checkpoint {epoch}."
    if blocked:
        why = f"The input from {names(blocked)} is blocked, this one is open: its events belong to checkpoint {epoch}."
    return Caption(f"{place} takes {label} from {sender}: {now}.", why)


def marked(place: str, epoch: int, offset: int) -> Caption:
    return Caption(
        f"{place} has read its slice: it reports offset {offset}, and sends checkpoint event {epoch} to all behind it.",
        f"What is before the checkpoint event belongs to checkpoint {epoch}; what is behind it belongs to the next one.",
    )


def blocked(place: str, epoch: int, sender: str, missing: Sequence[str], waiting: int) -> Caption:
    behind = "What comes behind it belongs"
    if waiting == 1:
        behind = "The event behind it must wait: it belongs"
    elif waiting:
        behind = f"The {plural(waiting, 'event')} behind it must wait: they belong"
    return Caption(
        f"Checkpoint event {epoch} comes to {place} from {sender}, not yet from {names(missing)}: this input is blocked.",
        f"{behind} to checkpoint {epoch + 1}. Applied now, it would be in the state of checkpoint {epoch}, and after a restore it "
        "would be read and applied once more.",
    )


def aligned(place: str, epoch: int, inputs: int) -> Caption:
    come = "all its inputs" if inputs > 1 else "its input"
    opened = " Its inputs are open again." if inputs > 1 else ""
    return Caption(
        f"Checkpoint event {epoch} has come to {place} on {come}: it stores its state and its rows, and reports.{opened}",
        f"Its state holds exactly what came before checkpoint event {epoch}, on every input.",
    )


def reported(epoch: int) -> Caption:
    return Caption(
        f"Every instance has reported on checkpoint {epoch}.",
        "Their files are on disk. No manifest names them yet, so after a crash now they count for nothing.",
    )


def prepared(epoch: int) -> Caption:
    return Caption(
        f"The driver writes the manifest of checkpoint {epoch} as prepared.",
        "This is the point of no return: after a crash, the next start commits these rows and computes nothing again.",
    )


def committed(epoch: int, sink: str, rows: int, resuming: bool) -> Caption:
    by = "The start offers" if resuming else "The driver offers"
    return Caption(
        f"{by} the staged rows of checkpoint {epoch} to {sink}: {plural(rows, 'row')} more.",
        "Rows and ledger row change in one transaction. If the same rows are offered again, the ledger row shows that they are "
        "there.",
    )


def completed(epoch: int) -> Caption:
    return Caption(
        f"The manifest of checkpoint {epoch} is written as completed.",
        "The next start needs nothing older: it resumes from here.",
    )


def crashed(completed: int, prepared: int) -> Caption:
    if prepared > completed:
        kept = f"On disk, the prepared manifest of checkpoint {prepared} counts, with its files."
    else:
        kept = f"On disk, checkpoint {completed} counts." if completed else "On disk, nothing counts yet."
    return Caption(
        "The machine crashes. Events in channels and states in memory are lost.",
        f"{kept} Rows in the sink stay as they are.",
    )


def names(items: Sequence[str]) -> str:
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
