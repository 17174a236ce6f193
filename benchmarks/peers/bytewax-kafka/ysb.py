"""The query of the Yahoo streaming benchmark in Bytewax: without recovery, so nothing is durable. Each batch is counted
before keys are routed; without that it is several times slower.

ysb.py SERVERS TOPIC OUTPUT FOLDER WINDOW_MS
"""

import sys
from collections import Counter

import bytewax.operators as op
import orjson
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.run import cli_main

servers, topic, output, folder, window = sys.argv[1:]
size = int(window)


def counted(messages):
    found = Counter()
    for message in messages:
        ad = orjson.loads(message.value)
        if ad["event_type"] == "view":
            found[int(ad["ad_id"]) // 10, int(ad["event_time"]) // size * size] += 1
    return [(f"{campaign}:{start}", views) for (campaign, start), views in found.items()]


def add(total, views):
    total = (total or 0) + views
    return total, total


def row(item):
    key, views = item
    campaign, start = map(int, key.split(":"))
    return KafkaSinkMessage(key.encode(), orjson.dumps({"campaign": campaign, "window_start": start, "views": views}))


flow = Dataflow("ysb")
messages = op.input("ads", flow, KafkaSource([servers], [topic], batch_size=10_000))
partial = op.flat_map_batch("views", messages, counted)
totals = op.stateful_map("counts", partial, add)
op.output("results", op.map("rows", totals, row), KafkaSink([servers], output))
cli_main(flow, workers_per_process=2)
