"""Where Chromium is: $CHROMIUM, else the PATH, else Debian's package, which is installed.

A machine that has none and cannot install it fails the tests; they are not skipped.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PACKAGES = ("chromium",)
INSTALL_SECONDS = 300.0
ARGUMENTS = ("--disable-dev-shm-usage", "--disable-gpu")


class NoChromiumError(Exception):
    """There is no browser for the tests."""


@cache
def chromium() -> str:
    """The path of the program."""
    if found := _found():
        return found
    if shutil.which("apt-get") is None:
        raise NoChromiumError(
            "no Chromium on the PATH, and no apt-get to install it: install it, or set CHROMIUM to its path"
        )
    with (Path(tempfile.gettempdir()) / "streamwork-tests-chromium.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of pytest begin at once
        if not _found():
            _install()
    if found := _found():
        return found
    raise NoChromiumError("Debian's package chromium was installed, and there is still no program of that name")


def arguments() -> list[str]:
    """Chromium refuses to run as root inside its own sandbox."""
    return [*ARGUMENTS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]


def _found() -> str | None:
    given = os.environ.get("CHROMIUM")
    if given is not None:
        if shutil.which(given) is None:
            raise NoChromiumError(f"CHROMIUM is {given!r}, which is not a program")
        return given
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _install() -> None:
    prefix = [] if os.geteuid() == 0 else ["sudo", "-n"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "-y", "--no-install-recommends", *PACKAGES]):
        command = [*prefix, "apt-get", "-q", *words]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise NoChromiumError(f"{' '.join(command)} has not ended after {INSTALL_SECONDS:.0f} s") from None
        if done.returncode != 0:
            raise NoChromiumError(f"{' '.join(command)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
