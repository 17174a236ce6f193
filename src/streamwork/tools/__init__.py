"""Tools over the files of jobs: they read the state of any kept checkpoint or savepoint, and write new savepoints.

`state` shows, queries, exports, compares and edits state; `compare` runs two versions of a job from one savepoint. Nothing here
changes a job's folder, its targets or an existing savepoint.
"""
