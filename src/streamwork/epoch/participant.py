"""Participants: parts that follow the epochs of a driver without being a step of the protocol.

A driver informs its participants of every state that an epoch enters, in the order of its list (`epoch.parts` has the list, and
why it is in that order): after the durable effect of that state, and before the next one begins. A participant may have
durable effects of its own, which the next start must be able to do again or without. An error that it raises ends the driver.

To take part, derive from `Participant`, define the methods that matter, and join the list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from streamwork.epoch.epoch import Epoch, State

if TYPE_CHECKING:
    from streamwork.epoch.draft import ManifestDraft
    from streamwork.epoch.footing import Footing
    from streamwork.epoch.manifest import Manifest


class Participant:
    """Every method does nothing unless it is defined. The numbers are those of `epoch.driver`."""

    def resume(self, footing: Footing) -> Sequence[str]:
        """A start has chosen the checkpoint to build on. Returns lines about what was found, for its summary."""
        return ()

    def planned(self, epoch: Epoch) -> None:
        """1. The plan is durable; the epoch is not submitted yet. Called again where it is computed again."""

    def contribute(self, epoch: Epoch, draft: ManifestDraft) -> None:
        """Before 4: add to the manifest. It may still be abandoned after this."""

    def prepared(self, epoch: Epoch) -> None:
        """4. The manifest is durable."""

    def committed(self, epoch: Epoch) -> None:
        """5. Every sink has the epoch."""

    def completed(self, epoch: Epoch) -> None:
        """6. The manifest is completed, no other driver had the job then, and the effects outside it are published."""

    def finished(self, epoch: Epoch) -> None:
        """Pruning is done, and the timings are complete."""

    def idle(self, epoch: Epoch) -> None:
        """Instead of 4: nothing has happened in the epoch. Its plan can be used again."""

    def abandoned(self, epoch: Epoch) -> None:
        """Instead of 4: the epoch was abandoned, or discarded with one that it was built on."""

    def failed(self, epoch: Epoch) -> None:
        """Instead of 3: an attempt raised an error. The driver ends."""

    def between(self, at: Manifest, unprepared: Sequence[Epoch]) -> None:
        """Between two epochs, and now and then while nothing happens. `at` is the newest completed checkpoint, which is pruned
        already; `unprepared` are the epochs in flight.
        """

    def close(self, unprepared: Sequence[Epoch]) -> None:
        """The driver ends, and leaves these epochs unprepared."""


_HOOKS: Mapping[State, Callable[[Participant, Epoch], None]] = {
    State.PLANNED: lambda participant, epoch: participant.planned(epoch),
    State.PREPARED: lambda participant, epoch: participant.prepared(epoch),
    State.COMMITTED: lambda participant, epoch: participant.committed(epoch),
    State.COMPLETED: lambda participant, epoch: participant.completed(epoch),
    State.FINISHED: lambda participant, epoch: participant.finished(epoch),
    State.IDLE: lambda participant, epoch: participant.idle(epoch),
    State.ABANDONED: lambda participant, epoch: participant.abandoned(epoch),
    State.DISCARDED: lambda participant, epoch: participant.abandoned(epoch),
    State.FAILED: lambda participant, epoch: participant.failed(epoch),
}


def inform(participants: Iterable[Participant], epoch: Epoch) -> None:
    """Call all participants for the state that an epoch has entered."""
    hook = _HOOKS[epoch.state]
    for participant in participants:
        hook(participant, epoch)
