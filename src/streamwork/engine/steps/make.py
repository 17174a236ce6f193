"""The step for a component."""

from __future__ import annotations

from streamwork.components import KeyedOperator, TableOperator
from streamwork.engine.steps.batch_steps import InstanceBatchStep, KeyedBatchStep, OperatorBatchStep
from streamwork.engine.steps.keyed_steps import KeyedStep
from streamwork.engine.steps.operator_steps import InstanceStep, OperatorStep
from streamwork.engine.steps.sink_steps import StageStep, WriteStep
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.table_step import TableStep
from streamwork.engine.steps.where_step import WhereStep
from streamwork.job import Graph, Node, NodeKind
from streamwork.operators import Where


def make_step(graph: Graph, node: Node, instance: int) -> Step:
    """The step that runs an operator or a sink."""
    promise = graph.promise
    if node.kind is NodeKind.SINK:
        return StageStep(node, instance) if graph.is_staged(node) else WriteStep(node, instance, promise.acknowledges)
    if isinstance(node.component, TableOperator):
        return TableStep(node, instance, promise.acknowledges)
    if isinstance(node.component, Where):
        return WhereStep(node, instance, promise.acknowledges)
    batches = hasattr(node.component, "apply_batch")
    kind: type[Step] = OperatorBatchStep if batches else OperatorStep
    if isinstance(node.component, KeyedOperator):
        kind = KeyedBatchStep if batches else KeyedStep
    elif node.keeps is not None:
        kind = InstanceBatchStep if batches else InstanceStep
    return kind(node, instance, promise.acknowledges)
