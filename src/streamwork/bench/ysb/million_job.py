"""The job of the variant `million`: a million campaigns, windows of 60 minutes, and the generator inside the job.

`redis`: the counts of open windows are written to Redis at each checkpoint, as hashes `counts:CAMPAIGN`. Without it, they are read
from the job's state.
"""

from __future__ import annotations

from streamwork import Fixed, Job, RedisSink, SqliteSink, count, field
from streamwork.bench.ysb.events import Counted, Stream
from streamwork.bench.ysb.source import CampaignAds

JOB, SOURCE, COUNTS, PREFIX = "ysb-million", "events", "counts", "counts"

job = Job(JOB, checkpoint_every="1s", parallelism=2)
events = job.param("events", default=0)
redis = job.param("redis", default="")
output = job.param("output", default="counts.db")
per_checkpoint = job.param("per-checkpoint", default=8_000_000)
stream = Stream(job.param("partitions", default=2), job.param("campaigns", default=100), job.param("step", default=2))

ads = job.source(CampaignAds(stream, events, per_checkpoint), id=SOURCE, time="at")
views = ads.where(field("kind") == "view")
hours = views.window(Fixed("60min"), time="at", key="campaign", emit="epoch" if redis else "close", id=COUNTS)
counts = hours.aggregate(Counted, views=count())
counts.sink(RedisSink(redis, "campaign", PREFIX) if redis else SqliteSink(output, COUNTS), id="results")
