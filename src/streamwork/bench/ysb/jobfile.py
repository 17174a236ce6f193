"""The job of the variants `inside` and `log`: views, joined with their campaigns, counted per campaign and window of 10 s."""

from __future__ import annotations

from typing import Any

from streamwork import Fixed, Job, LogSource, OffsetSource, SqliteSink, count
from streamwork.bench.ysb.ad_json import Decode
from streamwork.bench.ysb.events import AdLine, AdView, Counted, Stream
from streamwork.bench.ysb.query import WINDOW, campaign_views
from streamwork.bench.ysb.source import AdLines, Ads

JOB, SOURCE, SINK, TABLE = "ysb", "events", "results", "counts"

job = Job(JOB, checkpoint_every="1s", parallelism=2)
variant = job.param("variant", default="inside")
json = job.param("json", default=False)
events = job.param("events", default=0)
log = job.param("log", default="")
output = job.param("output", default="counts.db")
per_checkpoint = job.param("per-checkpoint", default=8_000_000)
stream = Stream(job.param("partitions", default=2), job.param("campaigns", default=100), job.param("step", default=2))
source: OffsetSource[Any]
if variant == "inside":
    source = AdLines(stream, events, per_checkpoint) if json else Ads(stream, events, per_checkpoint)
else:
    source = LogSource(log, AdLine if json else AdView, subset=True, max_events=per_checkpoint)
ads = job.source(source, id=SOURCE, time="at")
named = campaign_views(ads.apply(Decode(), id="decode") if json else ads, stream)
counts = named.window(Fixed(WINDOW), time="at", key="campaign", id="counts").aggregate(Counted, views=count())
counts.sink(SqliteSink(output, TABLE, key=("campaign", "window_start")), id=SINK)
