"""The archive of Spark's classes: made for one Java and one Spark, used where it is, and missed by nobody where it is not."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from streamwork.errors import JobFailed
from streamwork.hosts import archive
from streamwork.hosts.java import Java, find_java

SHARING = Java(Path("/java"), 17, "PATH", "17.0.1, mixed mode, sharing")
BARE = Java(Path("/java"), 17, "PATH", "17.0.1, mixed mode")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(archive, "_folder", lambda: tmp_path)
    monkeypatch.delenv(archive.OPTIONS, raising=False)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_it_is_used_only_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert archive.java_options(SHARING) == []
    path = archive.archive_of(SHARING)
    path.touch()
    assert archive.java_options(SHARING)[0] == f"-XX:SharedArchiveFile={path}"
    monkeypatch.setenv(archive.OPTIONS, "-Xmx2g -XX:TieredStopAtLevel=1")
    assert archive.java_options(SHARING)[:3] == ["-Xmx2g", "-XX:TieredStopAtLevel=1", f"-XX:SharedArchiveFile={path}"]
    monkeypatch.setenv(archive.OPTIONS, "-XX:SharedArchiveFile=/mine.jsa")
    assert archive.java_options(SHARING) == ["-XX:SharedArchiveFile=/mine.jsa"], "people know better"


@pytest.mark.usefixtures("folder")
def test_another_build_has_another_one_and_a_bare_java_two() -> None:
    archive.archive_of(SHARING).touch()
    assert archive.java_options(BARE) == []
    archive.archive_of(BARE).touch()
    assert ".jsa.base:" in archive.java_options(BARE)[0]


def rehearsals(monkeypatch: pytest.MonkeyPatch, *said: str) -> None:
    """What Spark says, time after time; only the first time something is left."""
    answers = iter(said)

    def run(command: list[Any], env: dict[str, str], **how: Any) -> subprocess.CompletedProcess[str]:
        if "ArchiveClassesAtExit=" in env[archive.OPTIONS] and said[0] != "no room":
            Path(env[archive.OPTIONS].partition("=")[2]).write_bytes(b"classes")
        return subprocess.CompletedProcess(command, 0, stdout=next(answers))

    monkeypatch.setattr(archive, "find_java", lambda: SHARING)
    monkeypatch.setattr(archive.subprocess, "run", run)


def test_it_is_made_once_and_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rehearsals(monkeypatch, "", "")
    assert archive.prepare() == archive.archive_of(SHARING)
    assert list(folder.iterdir()) == [archive.archive_of(SHARING)]


@pytest.mark.parametrize("said", [["no room"], ["", "Unable to use shared archive: paths mismatch"]])
def test_where_none_can_be_made_or_used_it_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    rehearsals(monkeypatch, *said)
    with pytest.raises(JobFailed, match=said[-1]) as caught:
        archive.prepare()
    assert caught.value.code == "SW-JAVA-ARCHIVE"
    assert not list(folder.iterdir())


@pytest.mark.slow
@pytest.mark.spark
def test_java_maps_it(spark: Any) -> None:
    """`make test-all` has made it."""
    path = archive.archive_of(find_java())
    if not path.exists():
        pytest.skip("there is none: `streamwork doctor --prepare`")
    maps = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what a process maps")
    assert str(path) in maps.read_text()
