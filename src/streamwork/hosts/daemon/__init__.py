"""A folder on the path of Spark's Python workers on this machine. It holds one module, `streamwork_daemon`, which is started by its
own name: importing it as part of the package would load pyarrow, and its threads, into a process that forks.
"""
