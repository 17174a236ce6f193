"""The job of the variant `state`: from a Kafka topic, with its state in the engine, into two Kafka topics.

`OUTPUT` gets the counts of open windows, each second; `OUTPUT-final` those of closed windows.
"""

from __future__ import annotations

from streamwork import Fixed, Job, KafkaSink, KafkaSource, count
from streamwork.bench.ysb.ad_json import AdJson
from streamwork.bench.ysb.events import AdView, Counted, Stream
from streamwork.bench.ysb.query import WINDOW, campaign_views

JOB, SOURCE = "ysb-state", "events"

job = Job(JOB, checkpoint_every="1s", parallelism=2)
servers = job.param("servers", default="")
topic = job.param("topic", default="ads")
output = job.param("output", default="counts")
window = job.param("window", default=WINDOW)
per_checkpoint = job.param("per-checkpoint", default=1_000_000)
stream = Stream(job.param("partitions", default=2), job.param("campaigns", default=100), job.param("step", default=2))

source = KafkaSource(servers, topic, AdView, format=AdJson(), max_events=per_checkpoint)
named = campaign_views(job.source(source, id=SOURCE, time="at"), stream)
key = ("campaign", "window_start")
closed = named.window(Fixed(window), time="at", key="campaign", id="counts").aggregate(Counted, views=count())
closed.sink(KafkaSink(servers, f"{output}-final", key=key), id="counts-topic")
interim = named.window(Fixed(window), time="at", key="campaign", emit="epoch", id="interim")
interim.aggregate(Counted, views=count()).sink(KafkaSink(servers, output, key=key), id="interim-topic")
