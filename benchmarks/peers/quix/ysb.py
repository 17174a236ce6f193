"""The query of the Yahoo streaming benchmark in Quix Streams: exactly-once, one process, which is all that its recovery uses here.

ysb.py SERVERS TOPIC OUTPUT FOLDER WINDOW_MS EVERY_MS
"""

import sys

from quixstreams import Application

servers, topic, output, folder, window, every = sys.argv[1:]
app = Application(
    broker_address=servers,
    consumer_group=output,
    auto_offset_reset="earliest",
    processing_guarantee="exactly-once",
    commit_interval=int(every) / 1000,
    state_dir=folder,
    loglevel="WARNING",
)
ads = app.topic(topic, value_deserializer="json", timestamp_extractor=lambda value, *_: int(value["event_time"]))
views = app.dataframe(ads).filter(lambda ad: ad["event_type"] == "view").apply(lambda ad: int(ad["ad_id"]) // 10)
counts = views.group_by(lambda campaign: str(campaign), name="campaign", key_deserializer="str")
windows = counts.tumbling_window(int(window)).count().current()
found = windows.apply(
    lambda one, key, *_: {"campaign": int(key.strip('"')), "window_start": one["start"], "views": one["value"]},
    metadata=True,
)
found.to_topic(app.topic(output, value_serializer="json"))
app.run()
