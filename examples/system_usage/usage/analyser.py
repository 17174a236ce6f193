"""`UsageAnalyser`: counts transactions, and those that were judged fraudulent."""

from __future__ import annotations

from streamwork import KeyedCollector, KeyedOperator, Record

from .events import Judged, Usage


class Totals(Record):
    transactions: int = 0
    fraudulent: int = 0
    unknown: int = 0


class UsageAnalyser(KeyedOperator[Judged, Totals, Usage]):
    """'No verdict' is not 'no fraud': transactions without a verdict are counted separately. Invalid transactions end here."""

    def apply(self, event: Judged, state: Totals, collector: KeyedCollector) -> None:
        if not event.is_valid:
            return
        state.transactions += 1
        state.fraudulent += event.verdict == "fraud"
        state.unknown += event.verdict == "unknown"
        numbers = state.transactions, state.fraudulent, state.unknown
        collector.emit(Usage(event.meter, event.transaction, event.verdict, *numbers))
