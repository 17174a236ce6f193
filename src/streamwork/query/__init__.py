"""Queryable state: the state of a job answers by key, by range and by SQL, without an output database.

    state = query.open(".streamwork/card-usage")
    state["per-card"].get("card-00017")          # Answer(record=Totals(...), epoch=41, committed=True, age=0.4)

`reader` follows the files of a job, `state` is the interface, `local` answers from the files. Nothing here knows
the job's code or writes into its folder.
"""

from streamwork.query.answer import Answer, Answers, Change, Consistency, Count, TableAnswer
from streamwork.query.local import open  # noqa: A004
from streamwork.query.remote import connect
from streamwork.query.state import Component, State

__all__ = [
    "Answer",
    "Answers",
    "Change",
    "Component",
    "Consistency",
    "Count",
    "State",
    "TableAnswer",
    "connect",
    "open",
]
