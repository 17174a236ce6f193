"""The fault matrix: a small world in which a job lives, breaks and lives again; what breaks it, as data; and what must hold.

faults    what breaks: a pattern over what happens, or a file that goes bad
watched   disk, source and operators that tell the world what they do; `watched_sinks` likewise
targets   the sinks of the matrix, and how their readers see them
world     a folder, sinks, a clock: what is there before, between and after the lives of a job
oracles   what must hold, by semantics
points    where lives break, and what the next one does about it
cells     points, sinks and promises, and the few of them that the quick tier runs
stories   a life that breaks and one that does not, sinks ahead and behind, two drivers, tasks that are run twice
on_spark  the cells that are tried on a real Spark
table     all of it as Markdown: `make faults`, or  PYTHONPATH=tests python -m matrix.table

Everything that happens in the world passes by under a line of text ("told commit 5", "after create checkpoints/...plan.json"),
and a `Fault` is a pattern over such lines: where it fits for the n-th time, the life ends.
"""
