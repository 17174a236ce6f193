"""Operators that come with Streamwork, built on components like any that users write.

Functions as operators: what `map`, `filter`, `flat_map`, `where` and `map_with_state` put into the graph.
"""

from streamwork.operators.functions import Filter, FlatMap, Map, MapWithState, Where

__all__ = ["Filter", "FlatMap", "Map", "MapWithState", "Where"]
