"""A Kafka broker of its own for tests and benchmarks.

    with KafkaServer.started() as broker:
        source = KafkaSource(broker.address, "transactions", Transaction)

One process is broker and controller. It listens on free ports of the loopback address, and keeps ports and data over `kill`,
`stop` and `start`. What it acknowledged survives a kill, not a power cut: Kafka relies on replicas for that, and here is one.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from kafka_broker import jars
from real_servers import Server
from streamwork.hosts.java import find_java

_CLUSTER = "c3RyZWFtd29yay10ZXN0cw"  # 16 bytes in base64, as Kafka wants them
_QUICK = ["-Xmx256m", "-XX:TieredStopAtLevel=1"]  # starts in two seconds
_FAST = ["-Xmx768m"]  # for benchmarks
_SETTINGS = """
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={data}
auto.create.topics.enable=false
num.partitions=1
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
log.cleaner.backoff.ms=200
log.initial.task.delay.ms=200
log.retention.check.interval.ms=500
log.retention.ms=-1
log.segment.delete.delay.ms=0
controlled.shutdown.enable=false
"""


class KafkaServer(Server):
    """A broker; `address` is what clients take as servers. If not `durable`, it has a small heap and starts faster."""

    def __init__(self, folder: Path, durable: bool = False) -> None:
        super().__init__(folder, durable)
        self._java = str(find_java().home / "bin" / "java")
        self._classes = f"{jars.folder()}/*"
        self._archive = jars.classes()
        self._archived = folder / "classes.jsa"  # written when the first broker on the machine ends
        self._settings = folder / "server.properties"
        self._port = 0
        if not self._settings.exists():
            self._format()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def _format(self) -> None:
        self._port, controller = free_ports(2)
        self._settings.write_text(self._settings_text(self._port, controller))
        tool = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(self._settings), *self._format_options()]
        made = subprocess.run(self._command(tool), capture_output=True, text=True, check=False)
        if made.returncode:
            raise RuntimeError(f"the folder of a Kafka broker was not made: {made.stdout + made.stderr}")

    def _settings_text(self, port: int, controller: int) -> str:
        return _SETTINGS.format(port=port, controller=controller, data=self.data)

    def _format_options(self) -> list[str]:
        return []

    def _command(self, program: list[str]) -> list[str]:
        options = [*(_FAST if self._durable else _QUICK), "-XX:+UseSerialGC", "-Djava.awt.headless=true"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", self._classes]
        return [self._java, *options, *program]

    def _launch(self, log: int) -> subprocess.Popen[bytes]:
        program = ["kafka.Kafka", str(self._settings)]
        if not self._durable:
            known = self._archive.exists()
            program.insert(
                0, f"-XX:SharedArchiveFile={self._archive}" if known else f"-XX:ArchiveClassesAtExit={self._archived}"
            )
        return subprocess.Popen(self._command(program), cwd=self.folder, stdout=log, stderr=log)

    def stop(self) -> None:
        super().stop()
        if self._archived.exists():
            shutil.copy(self._archived, f"{self._archive}.{os.getpid()}")
            Path(f"{self._archive}.{os.getpid()}").replace(self._archive)  # at once: others may read it
            self._archived.unlink()

    def _answers(self) -> bool:
        with socket.socket() as probe:  # a client would wait longer between its attempts
            if probe.connect_ex(("127.0.0.1", self._port)):
                return False
        client = AdminClient({"bootstrap.servers": self.address, "log_level": 0, "socket.timeout.ms": 2_000})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


def free_ports(count: int) -> list[int]:
    """Free ports below those that the system gives to outgoing connections.

    From among those a client that tries to reconnect to a killed broker could be given the broker's own port, and keep it.
    """
    first = int(_LINUX.read_text().split()[0]) if _LINUX.exists() else 32_768
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(min(20_000, first - 2_000), first)
        with socket.socket() as probe:
            if port not in found and not _is_taken(probe, port):
                found.append(port)
    return found


_LINUX = Path("/proc/sys/net/ipv4/ip_local_port_range")


def _is_taken(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind(("127.0.0.1", port))
    except OSError:
        return True
    return False
