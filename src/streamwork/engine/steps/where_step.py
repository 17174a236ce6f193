"""The step of a filter by an expression (`where`): columns stay columns."""

from __future__ import annotations

import numpy as np

from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.operator_steps import OperatorStep
from streamwork.flow.batch import Batch


class WhereStep(OperatorStep):
    """Keeps the rows for which the expression is true, with their lineage. Events that are objects stay objects."""

    def process(self, batch: Batch) -> Outputs:
        given = batch.given
        if not isinstance(given, Columns):
            return super().process(batch)
        places = np.flatnonzero(self.operator.mask(given.batch))
        self.processed += len(batch)
        self.delivered += len(places)
        if len(places) == len(batch):
            return {MAIN: batch}
        if not len(places):
            return {}
        lineage = batch.lineage.take(places) if self.keeps_lineage and batch.lineage is not None else None
        return {MAIN: Batch(given.take(places), lineage)}
