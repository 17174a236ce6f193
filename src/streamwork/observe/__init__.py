"""Read models of a job's folder: status, checkpoints, metrics, dead letters.

Reads files only, and prints nothing; the command line and the metrics server show what it returns.
"""
