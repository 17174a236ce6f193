"""The Yahoo streaming benchmark: ad events, kept if they are views, joined with their campaigns, counted per campaign and window.

events      the events, as columns and as JSON; each is a function of its partition and offset
source      a source of such events, for the variant with the generator inside the job
jobfile     the job, as `streamwork run` gets it
running     a run of it in processes of its own, and what it has done each second
oracle      the counts that it must give
throughput  the variants `inside` and `log`
"""

from pathlib import Path


def jobfile_path() -> Path:
    return Path(__file__).parent / "jobfile.py"
