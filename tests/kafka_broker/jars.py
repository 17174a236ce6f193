"""The jars of the broker, in a cache folder of the user. Each must have the hash that `jars.sha256` names.

They are fetched once, by Maven coordinates, with the Ivy that is inside the package `pyspark`. `IVY_SETTINGS` in the environment
names another settings file, for a mirror; `STREAMWORK_KAFKA_JARS` a folder that has the jars already.

    python -m kafka_broker.jars          # in the folder `tests`: fetch the jars, and print their folder
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from streamwork.hosts.java import find_java

HERE = Path(__file__).parent
HASHES = HERE / "jars.sha256"
_ATTEMPTS = 3
_SECONDS = 600


class NoBroker(RuntimeError):
    """The jars cannot be had. Tests that need the broker fail with it: they are not skipped."""


def expected() -> dict[str, str]:
    """File name -> sha256."""
    lines = (line.split() for line in HASHES.read_text().splitlines() if line.strip())
    return {name: sha256 for sha256, name in lines}


def folder() -> Path:
    """The folder with the jars, fetched if they are not there. Every hash is compared."""
    if given := os.environ.get("STREAMWORK_KAFKA_JARS"):
        check(Path(given), expected())
        return Path(given)
    cache = cache_folder()
    jars = cache / f"kafka-{hashlib.sha256(HASHES.read_bytes()).hexdigest()[:12]}"
    with (cache / "kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test processes fetch them once
        if not jars.exists():
            with tempfile.TemporaryDirectory(dir=cache) as work:
                fetched = fetch(Path(work))
                check(fetched, expected())
                fetched.rename(jars)
    try:
        check(jars, expected())
    except NoBroker:
        shutil.rmtree(jars)  # the next run fetches them anew
        raise
    return jars


def cache_folder() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streamwork"
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def classes() -> Path:
    """A file for the loaded classes of these jars in this Java, with which a broker starts at half the cost. It may be missing."""
    made = hashlib.sha256(HASHES.read_bytes() + str(find_java()).encode()).hexdigest()[:12]
    return cache_folder() / f"kafka-{made}.jsa"


def fetch(work: Path) -> Path:
    """Fetch the jars into a folder below `work`."""
    said = ""
    for _ in range(_ATTEMPTS):  # a download may break off; what is in Ivy's cache is not fetched again
        command = [str(_java()), "-jar", str(_ivy()), "-ivy", str(HERE / "ivy.xml"), "-confs", "broker"]
        command += ["-settings", os.environ.get("IVY_SETTINGS") or str(HERE / "ivysettings.xml")]
        command += ["-cache", str(work / "cache"), "-retrieve", str(work / "jars" / "[artifact]-[revision].[ext]")]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            said = f"no answer within {_SECONDS} s"
            continue
        if done.returncode == 0 and (work / "jars").exists():
            return work / "jars"
        said = (done.stdout + done.stderr)[-2000:]
    raise NoBroker(f"the jars of the Kafka broker cannot be fetched: {said}")


def check(jars: Path, hashes: dict[str, str]) -> None:
    """Raise NoBroker if the folder has other jars than these."""
    there = {path.name for path in jars.glob("*.jar")}
    if there != hashes.keys():
        wrong = ", ".join(sorted(there ^ hashes.keys()))
        raise NoBroker(f"{jars} has other jars than {HASHES.name} names: {wrong}")
    for name, sha256 in hashes.items():
        if hash_of(jars / name) != sha256:
            raise NoBroker(f"{jars / name} does not have the hash that {HASHES.name} names")


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _java() -> Path:
    return find_java().home / "bin" / "java"


def _ivy() -> Path:
    package = find_spec("pyspark")
    assert package is not None and package.submodule_search_locations, "pyspark is a dependency of the project"
    found = sorted((Path(package.submodule_search_locations[0]) / "jars").glob("ivy-*.jar"))
    if not found:
        raise NoBroker("the package pyspark has no Ivy, with which the jars of the Kafka broker are fetched")
    return found[-1]


if __name__ == "__main__":
    if sys.argv[1:] == ["--pin"]:  # after a change of ivy.xml
        with tempfile.TemporaryDirectory() as place:
            made = sorted(fetch(Path(place)).glob("*.jar"))
            HASHES.write_text("".join(f"{hash_of(path)}  {path.name}\n" for path in made))
    print(folder())
