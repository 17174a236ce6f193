"""``streamwork demo``: a card network in a box. Both example jobs run as processes of their own, are killed, and recover.

Pure: `schedule` (what is killed when), `incident` (whether a job has recovered), `verdict` (whether the totals are right).
With processes and files: `system` (the processes), `reading` (what their files contain), `counts` (the independent count).
For the user: `screen` (a terminal), `lines` (no terminal), `summary`. `demo` connects them; `command` is the command line.
"""
