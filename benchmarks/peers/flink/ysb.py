"""The query of the Yahoo streaming benchmark in Flink SQL, exactly-once into Kafka.

Flink SQL joins a stream with a static table only with state for the stream. The campaign is computed from the ad instead, in
Flink's favour. Windows are emitted when they close.

ysb.py SERVERS TOPIC OUTPUT FOLDER JARS WINDOW_MS EVERY_MS
"""

import sys

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

servers, topic, output, folder, jars, window, every = sys.argv[1:]
settings = Configuration()
for name, value in {
    "pipeline.jars": ";".join(f"file://{jar}" for jar in jars.split(",")),
    "parallelism.default": "2",
    "execution.checkpointing.interval": f"{every} ms",
    "execution.checkpointing.dir": f"file://{folder}/checkpoints",
    "table.local-time-zone": "UTC",
    "table.exec.source.idle-timeout": "0 ms",
}.items():
    settings.set_string(name, value)
flink = TableEnvironment.create(
    EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
)
flink.execute_sql(f"""
    CREATE TABLE ads (
        ad_id STRING, event_type STRING, event_time STRING,
        happened AS TO_TIMESTAMP_LTZ(CAST(event_time AS BIGINT), 3), WATERMARK FOR happened AS happened
    ) WITH (
        'connector' = 'kafka', 'topic' = '{topic}', 'properties.bootstrap.servers' = '{servers}',
        'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
    )""")
flink.execute_sql(f"""
    CREATE TABLE results (campaign BIGINT, window_start STRING, `views` BIGINT) WITH (
        'connector' = 'kafka', 'topic' = '{output}', 'properties.bootstrap.servers' = '{servers}', 'format' = 'json',
        'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '{output}',
        'properties.transaction.timeout.ms' = '600000'
    )""")
flink.execute_sql("""
    CREATE TEMPORARY VIEW viewed AS
    SELECT CAST(ad_id AS BIGINT) / 10 AS campaign, happened FROM ads WHERE event_type = 'view'""")
flink.execute_sql(f"""
    INSERT INTO results
    SELECT campaign, REPLACE(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss.SSS'), ' ', 'T') || 'Z', COUNT(*)
    FROM TUMBLE(TABLE viewed, DESCRIPTOR(happened), INTERVAL '{int(window) / 1000}' SECOND(3))
    GROUP BY campaign, window_start, window_end""").wait()
