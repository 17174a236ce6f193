"""The Yahoo streaming benchmark: ad events, kept if they are views, joined with their campaigns, counted per campaign and window.

events, oracle      the events, as columns and as JSON, each a function of its partition and offset; the counts that they give
query               the query, for all jobs; `ad_json` is the events' format in Kafka
source, jobfile     the generator as a source, and the job of the variants `inside` and `log`
state_job           the job of the variant `state`; `baseline_job` that of `baseline`, `million_job` that of `million`
running, program    a job, or a peer, in processes of its own
topics, arrivals    events sent to a topic, and when results could be read from one
systems             the systems of the variant `state`
throughput          the variants `inside` and `log`; `rates` has `rates` and `batches`; the others are modules of their own
variants            starts a variant by its name
"""

from pathlib import Path

VARIANTS = ("baseline", "state", "generator", "inside", "log", "million", "rates", "batches")


def jobfile_path() -> Path:
    return Path(__file__).parent / "jobfile.py"
