"""Built-in operators, on the same base classes as a user's own.

Functions as operators: those of `map`, `filter`, `flat_map`, `where` and `map_with_state`.
"""

from streamwork.operators.functions import Filter, FlatMap, Map, MapWithState, Where
from streamwork.operators.joins.lookup import Lookup
from streamwork.operators.joins.static import StaticTable

__all__ = ["Filter", "FlatMap", "Lookup", "Map", "MapWithState", "StaticTable", "Where"]
