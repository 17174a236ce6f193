"""Running a job from its first start to its end: the runner, restarts, stop requests, batch runs.

Prints nothing: a watcher that is passed in is told of progress.
"""
