"""Verdicts: what a job's signs mean, in words, and what to do about it.

`Signs` are what the files of a job show; `policy.judge` turns them into verdicts. It is pure: no clock, no file, no job.
"""

from streamwork.observe.verdicts.policy import judge
from streamwork.observe.verdicts.signs import Signs
from streamwork.observe.verdicts.verdict import Kind, Verdict

__all__ = ["Kind", "Signs", "Verdict", "judge"]
