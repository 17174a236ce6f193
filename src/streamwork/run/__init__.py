"""Running a job from its first start to its end: options, runner, restarts, stop requests, batch runs.

Prints nothing: progress goes to the `Watcher` that is passed in.
"""
