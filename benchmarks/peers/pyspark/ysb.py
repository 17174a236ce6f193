"""The query of the Yahoo streaming benchmark in plain Structured Streaming, by hand. Spark's Kafka sink is at-least-once.

ysb.py SERVERS TOPIC OUTPUT FOLDER JARS WINDOW_MS TRIGGER MOST_EVENTS ADS
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

servers, topic, output, folder, jars, window, trigger, most, ads = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars", jars)
    .config("spark.driver.memory", "1g")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.sql.session.timeZone", "UTC")
    .getOrCreate()
)
campaigns = spark.range(int(ads)).select(
    f.col("id").cast("string").alias("ad_id"), f.expr("id div 10").alias("campaign")
)
source = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
records = spark.readStream.format("kafka").options(**source, maxOffsetsPerTrigger=most).load()
fields = f.from_json(f.col("value").cast("string"), "ad_id string, event_type string, event_time string")
events = records.select(fields.alias("event")).select("event.*")
views = events.where("event_type = 'view'").select("ad_id", f.expr("timestamp_millis(cast(event_time as long)) as at"))
named = views.withWatermark("at", f"{window} milliseconds").join(f.broadcast(campaigns), "ad_id")
counts = named.groupBy(f.window("at", f"{window} milliseconds"), "campaign").count()
results = counts.selectExpr(
    "cast(campaign as string) as key",
    "to_json(struct(campaign, unix_millis(window.start) as window_start, count as views)) as value",
)
sink = {"kafka.bootstrap.servers": servers, "topic": output, "checkpointLocation": folder}
query = results.writeStream.format("kafka").options(**sink).outputMode("update").trigger(processingTime=trigger)
query.start().awaitTermination()
