"""The state of a job at one checkpoint or savepoint, read from its files, and savepoints that are written from it.

`StatePoint` is where state is read from, `ComponentState` the rows of one component there. `diff` compares two points, `query` is
SQL over one. Nothing here changes a job's folder, its targets or an existing savepoint.
"""
