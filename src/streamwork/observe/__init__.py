"""Read models of a job's folder: status, checkpoints, counters, dead letters, metrics.

Each is a frozen value that is read from files. The command line prints it as text or JSON, the metrics server as metrics; so
they never disagree. Nothing here prints, or changes a file of the job.
"""
