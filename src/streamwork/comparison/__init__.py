"""Two versions of a job over the same slice of input, from one savepoint: what differs in their outputs and in their state.

`comparing` runs them, each in a scratch folder on the local host (`trial`), with sinks that keep rows instead of writing them
(`capture`). `outputs` and `statefiles.diff` compare, `report` holds and stores the result. Targets, logs and the job's own folder
are only read.
"""
