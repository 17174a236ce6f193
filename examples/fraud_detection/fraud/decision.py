"""`Decision`: the job's result for one transaction."""

from __future__ import annotations

from datetime import datetime

from streamwork import Event

from .score import ANALYSERS


class Decision(Event):
    transaction: str
    card: str
    fraud: bool
    score: float  # the sum of `scores`
    scores: dict[str, float]  # analyser -> score, of the analysers that answered in time
    decided_at: datetime

    @property
    def missing(self) -> frozenset[str]:
        """The analysers whose score is missing."""
        return ANALYSERS - self.scores.keys()

    @property
    def reason(self) -> str:
        """The analyser with the highest score."""
        return max(self.scores, key=lambda analyser: self.scores[analyser], default="")
