"""The SQL of preview tables and views. {name} stands for identifiers, which the sink quotes."""

from __future__ import annotations

DELETED = "__deleted"  # the column of a preview that marks a delete

_COUNTED = (
    "SELECT p.* FROM {preview} p JOIN streamwork_ledger l "
    "ON l.uid = p.__uid AND l.sink = p.__sink AND l.fence = p.__fence "
    "WHERE CASE WHEN l.mark = '' THEN TRUE ELSE CAST(l.mark AS BIGINT) < p.__epoch END"
)
LABELS = ("__uid", "__sink", "__fence", "__epoch", "__row")


def preview_table(numbered: str) -> list[str]:
    """The columns of a preview table beside those of the event, whose names never begin with two underscores."""
    labels = ["__uid TEXT NOT NULL", "__sink TEXT NOT NULL", "__fence BIGINT NOT NULL", "__epoch BIGINT NOT NULL"]
    return [*labels, f"__row {numbered}", f"{DELETED} BOOLEAN NOT NULL DEFAULT FALSE"]


def dirty_view(keys: int) -> str:
    """The view of committed rows, and of the registered driver's previews of checkpoints beyond `mark`. `__epoch` is
    the checkpoint that will commit a row; NULL: committed.

    With a key, the newest preview replaces the committed row and earlier previews. If it is a delete, the view has no row for the
    key.
    """
    committed = "SELECT {columns}, CAST(NULL AS BIGINT) AS __epoch FROM {table} t"
    if not keys:
        return f"CREATE VIEW {{dirty}} AS {committed} UNION ALL SELECT {{columns}}, __epoch FROM ({_COUNTED}) c"
    names = [f"{{k{number}}}" for number in range(keys)]
    same = " AND ".join(f"c.{name} = t.{name}" for name in names)
    order = f"row_number() OVER (PARTITION BY {', '.join(names)} ORDER BY __epoch DESC, __row DESC)"
    return (
        f"CREATE VIEW {{dirty}} AS {committed} WHERE NOT EXISTS (SELECT 1 FROM ({_COUNTED}) c WHERE {same}) "
        f"UNION ALL SELECT {{columns}}, __epoch FROM (SELECT c.*, {order} AS __place FROM ({_COUNTED}) c) n "
        f"WHERE __place = 1 AND NOT {DELETED}"
    )
