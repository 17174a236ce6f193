"""The job of the variants `inside` and `log`: views, joined with their campaigns, counted per campaign and window of 10 s."""

from __future__ import annotations

from typing import Any

from streamwork import Fixed, Job, LogSource, OffsetSource, SqliteSink, count
from streamwork.bench.ysb.events import AdView, Counted, Stream
from streamwork.bench.ysb.query import WINDOW, campaign_views
from streamwork.bench.ysb.source import Ads

JOB, SOURCE, SINK, TABLE = "ysb", "events", "results", "counts"

job = Job(JOB, checkpoint_every="1s", parallelism=2)
variant = job.param("variant", default="inside")
events = job.param("events", default=0)
log = job.param("log", default="")
output = job.param("output", default="counts.db")
per_checkpoint = job.param("per-checkpoint", default=8_000_000)
stream = Stream(job.param("partitions", default=2), job.param("campaigns", default=100), job.param("step", default=2))
source: OffsetSource[Any]
if variant == "inside":
    source = Ads(stream, events, per_checkpoint)
else:
    source = LogSource(log, AdView, subset=True, max_events=per_checkpoint)
named = campaign_views(job.source(source, id=SOURCE, time="at"), stream)
counts = named.window(Fixed(WINDOW), time="at", key="campaign", id="counts").aggregate(Counted, views=count())
counts.sink(SqliteSink(output, TABLE, key=("campaign", "window_start")), id=SINK)
