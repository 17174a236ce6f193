"""What a driver records in a history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from streamwork.delivery.counts import Counts
from streamwork.epoch.history.lag import InputEnd, Sample
from streamwork.epoch.history.values import Row, StateSize
from streamwork.epoch.in_doubt import InDoubt


class Recorder(Protocol):
    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None:
        """Record an epoch, what was counted in it, and what was counted by attempts after which it was computed again. With
        `once` nothing is recorded if that epoch is known to be committed already. Never raises.
        """

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        """Record input that is in doubt. Returns the part that is new: not recorded before, and not known to be committed.
        Never raises.
        """

    def input_ends(self, ends: Sequence[InputEnd], samples: Sequence[Sample] = ()) -> None:
        """Record where input ends, and how much was read. Never raises."""

    def state_sizes(self, sizes: Sequence[StateSize]) -> None:
        """Record how large the states are. Never raises."""

    def back_to(self, epoch: int) -> None:
        """A start builds on this epoch: count epochs that were committed beyond it as abandoned. Never raises."""

    def close(self) -> None: ...


class NoHistory:
    """Records nothing, for simulations."""

    def record(
        self, row: Row, counts: Sequence[Counts] = (), wasted: Sequence[Counts] = (), once: bool = False
    ) -> None: ...

    def doubt(self, found: Sequence[InDoubt]) -> Sequence[InDoubt]:
        return found

    def input_ends(self, ends: Sequence[InputEnd], samples: Sequence[Sample] = ()) -> None: ...

    def state_sizes(self, sizes: Sequence[StateSize]) -> None: ...

    def back_to(self, epoch: int) -> None: ...

    def close(self) -> None: ...
