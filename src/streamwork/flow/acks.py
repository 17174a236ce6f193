"""Acknowledgements and failures of the events that one component's instance applies in one epoch."""

from __future__ import annotations

from collections.abc import Callable

from streamwork.flow.lineage import UNTRACKED


class Acks:
    """The `Acknowledgement` of the component's collector.

    Acknowledgements are counted: an event that came as two children, or that was applied twice, needs two.
    """

    def __init__(self, manual: bool, name: Callable[[int], str]) -> None:
        """`manual`: an event is done when the component acknowledges it, not when it returns. `name` gives a root its event id."""
        self.failed: list[tuple[int, str]] = []
        self.owed: dict[int, int] = {}  # root -> how many acknowledgements are missing
        self.handed_back = 0  # failures that sources have been informed of
        self.acked: list[str] = []  # events of earlier calls, once for each acknowledgement
        self._manual = manual
        self._name = name
        self._root = UNTRACKED
        self._owes = False  # True until the current call is acknowledged
        self._before = 0  # what was owed, and how much was acknowledged, before the current call
        self._acked_before = 0

    def begin(self, root: int) -> None:
        """This root's event is applied next; or a timer fires, which has no root."""
        self._root = root
        if self._manual:
            self._acked_before = len(self.acked)
            self._owes = root != UNTRACKED
            if self._owes:
                self._before = self.owed.get(root, 0)
                self.owed[root] = self._before + 1

    def undo(self) -> None:
        """The current call has failed: undo its acknowledgements, and expect none for it."""
        if self._manual:
            del self.acked[self._acked_before :]
            if self._root != UNTRACKED:
                self._owe(self._before)
            self._owes = False

    def fail(self, root: int, error: str) -> None:
        """The event of a root has failed here."""
        self.failed.append((root, error))

    def new_failures(self) -> list[int]:
        """The roots of the events that have failed since the last call."""
        found = [root for root, _ in self.failed[self.handed_back :]]
        self.handed_back += len(found)
        return found

    @property
    def event_id(self) -> str:
        return "" if self._root == UNTRACKED else self._name(self._root)

    def ack(self, event_id: str | None) -> None:
        if not self._manual or (event_id is None and not self._owes):  # one acknowledgement per call counts
            return
        if event_id is None or (self._root != UNTRACKED and event_id == self.event_id):
            self._owes = False
            self._owe(self.owed.get(self._root, 0) - 1)
        else:
            self.acked.append(event_id)

    def _owe(self, count: int) -> None:
        if count > 0:
            self.owed[self._root] = count
        else:
            self.owed.pop(self._root, None)
