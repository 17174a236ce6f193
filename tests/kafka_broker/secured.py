"""A Kafka broker with TLS, passwords and rights. Certificates are made with the keytool of the Java that runs the broker.

It has two listeners. `secure_address` is the one of jobs under test: TLS, and SASL with SCRAM-SHA-512 or PLAIN. `address` has no
security: the broker itself and the oracles use it, with all rights.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_broker.server import KafkaServer, free_ports
from streamwork.hosts.java import find_java

USER, PASSWORD = "jane", "s3cret-of-jane"
POOR, POOR_PASSWORD = "joe", "s3cret-of-joe"
"""A user without any right."""
_STORE_PASSWORD = "of-the-store"
_SETTINGS = """
listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{secure}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
listener.name.secure.sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
listener.name.secure.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required {plain};
listener.name.secure.ssl.keystore.type=PKCS12
listener.name.secure.ssl.keystore.location={store}
listener.name.secure.ssl.keystore.password={store_password}
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@dataclass(frozen=True)
class Authority:
    """A certificate authority of its own: a key store, and the certificate that clients trust."""

    store: Path
    certificate: Path

    @classmethod
    def made(cls, folder: Path) -> Authority:
        folder.mkdir(parents=True)
        authority = cls(folder / "authority.p12", folder / "authority.pem")
        _keytool(authority.store, "-genkeypair", "-dname", "CN=Streamwork tests", "-ext", "bc:c=ca:true")
        authority.certificate.write_text(_keytool(authority.store, "-exportcert", "-rfc"))
        return authority

    def certify(self, store: Path, address: str) -> None:
        """Make a key store for a server at this IP address, with a certificate that this authority has signed."""
        _keytool(store, "-genkeypair", "-dname", "CN=broker")
        request = _keytool(store, "-certreq")
        signed = _keytool(self.store, "-gencert", "-rfc", "-ext", f"san=ip:{address}", given=request)
        chain = signed + self.certificate.read_text()
        _keytool(store, "-importcert", "-noprompt", given=chain)


def _keytool(store: Path, command: str, *options: str, given: str = "") -> str:
    words = [str(find_java().home / "bin" / "keytool"), command, "-keystore", str(store), "-storetype", "PKCS12"]
    words += ["-storepass", _STORE_PASSWORD, "-alias", "own", *options, "-J-XX:TieredStopAtLevel=1"]
    if command in ("-genkeypair", "-gencert"):
        words += ["-validity", "3650"]
    if command == "-genkeypair":
        words += ["-keyalg", "EC", "-groupname", "secp256r1"]
    done = subprocess.run(words, input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"keytool {command}: {done.stdout + done.stderr}")
    return done.stdout


class SecuredKafkaServer(KafkaServer):
    @property
    def secure_address(self) -> str:
        return f"127.0.0.1:{self._secure}"

    @property
    def certificate(self) -> Path:
        """Of the authority that has signed the broker's certificate."""
        return self.folder / "tls" / "authority.pem"

    def _format(self) -> None:
        (self._secure,) = free_ports(1)
        authority = Authority.made(self.folder / "tls")
        self._store = self.folder / "tls" / "broker.p12"
        authority.certify(self._store, "127.0.0.1")
        super()._format()

    def _settings_text(self, port: int, controller: int) -> str:
        users = {USER: PASSWORD, POOR: POOR_PASSWORD}
        plain = " ".join(f'user_{name}="{password}"' for name, password in users.items())
        more = _SETTINGS.format(
            port=port,
            controller=controller,
            secure=self._secure,
            store=self._store,
            store_password=_STORE_PASSWORD,
            plain=plain,
        )
        return super()._settings_text(port, controller) + more  # of two lines with one name the later one counts

    def _format_options(self) -> list[str]:
        users = {USER: PASSWORD, POOR: POOR_PASSWORD}
        scram = [f"SCRAM-SHA-512=[name={name},password={password}]" for name, password in users.items()]
        return [word for user in scram for word in ("--add-scram", user)]

    def grant(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        """Rights on all resources whose names begin with `name`."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        allow, prefixed = AclPermissionType.ALLOW, ResourcePatternType.PREFIXED
        rights = [AclBinding(kind, name, prefixed, f"User:{user}", "*", one, allow) for one in operations]
        for answer in admin.create_acls(rights).values():
            answer.result(30)
