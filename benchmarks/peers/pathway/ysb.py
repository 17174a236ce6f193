"""The query of the Yahoo streaming benchmark in Pathway: at-least-once, nothing is durable, and counts go out each second.

ysb.py SERVERS TOPIC OUTPUT FOLDER WINDOW_MS EVERY_MS ADS
"""

import sys

import pathway as pw

servers, topic, output, folder, window, every, ads = sys.argv[1:]


class Ad(pw.Schema):
    ad_id: str
    event_type: str
    event_time: str


settings = {"bootstrap.servers": servers, "group.id": output, "auto.offset.reset": "earliest"}
events = pw.io.kafka.read(settings, topic=topic, schema=Ad, format="json", autocommit_duration_ms=int(every))
views = events.filter(pw.this.event_type == "view")
views = views.select(
    campaign=pw.this.ad_id.str.parse_int() // 10,
    window_start=pw.this.event_time.str.parse_int() // int(window) * int(window),
)
counts = views.groupby(pw.this.campaign, pw.this.window_start).reduce(
    pw.this.campaign, pw.this.window_start, views=pw.reducers.count()
)
pw.io.kafka.write(counts, {"bootstrap.servers": servers}, topic_name=output, format="json")
pw.run(monitoring_level=pw.MonitoringLevel.NONE)
