"""Kafka as a source and as a sink (extra `kafka`).

cluster     servers and settings, without secrets in what is shown; errors of the client
kept        clients that stay open between calls, per process
topics      what a cluster knows of a topic: its id, partitions, offsets
feed        the records of one partition, in order, from a consumer that stays open
formats     values of records to events and back
source, sink, ledger
"""

from streamwork.connectors.kafka.formats import AvroFormat, JsonFormat, RawFormat, ValueFormat
from streamwork.connectors.kafka.sink import KafkaSink
from streamwork.connectors.kafka.source import KafkaSource

__all__ = ["AvroFormat", "JsonFormat", "KafkaSink", "KafkaSource", "RawFormat", "ValueFormat"]
