"""The declared dependencies and extras are those that the code imports."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Set
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

REPO = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
IMPORTED_BY_OTHERS = {
    "pandas",  # by pyspark's Arrow functions
    "httptools",  # by uvicorn
    "uvloop",  # by uvicorn
}
INSTALLED_WITH_ANOTHER = {
    "numpy": "pandas",  # pandas requires it, and cannot work without it
    "py4j": "pyspark",
    "opentelemetry-api": "opentelemetry-sdk",
}


PARTS = {
    "opentelemetry.exporter": "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry.sdk": "opentelemetry-sdk",
    "opentelemetry": "opentelemetry-api",
}
"""The distributions of a package that several of them share, the longest name first."""


def part(module: str) -> str:
    return next((name for name in PARTS if module.startswith(name)), module.partition(".")[0])


@cache
def imported(source: Path) -> frozenset[str]:
    """The names of the distributions that the modules of a folder import."""
    found: set[str] = set()
    for path in source.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {part(alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(part(node.module or ""))
    known = packages_distributions()
    modules = found - sys.stdlib_module_names - {"streamwork", "__future__"}
    return frozenset(normal(PARTS.get(module) or known.get(module, [module])[0]) for module in modules)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: list[str]) -> set[str]:
    return {normal(re.match(r"[A-Za-z0-9._-]+", one)[0]) for one in requirements}  # type: ignore[index]


def unused(project: dict[str, dict[str, list[str]]], used: Set[str]) -> set[str]:
    """Extras that bring something that no module imports."""
    return {extra for extra, brings in project["optional-dependencies"].items() if not named(brings) <= used}


def test_every_extra_is_used_by_the_code() -> None:
    assert unused(PROJECT, imported(REPO / "src")) == set()


def test_the_check_notices_an_extra_that_nothing_uses() -> None:
    project = {"optional-dependencies": {**PROJECT["optional-dependencies"], "grpc": ["grpcio>=1.60"]}}
    assert unused(project, imported(REPO / "src")) == {"grpc"}


def test_every_dependency_is_imported_and_every_import_is_declared() -> None:
    used = imported(REPO / "src") - set(INSTALLED_WITH_ANOTHER)
    declared = named(PROJECT["dependencies"])
    optional = {name for brings in PROJECT["optional-dependencies"].values() for name in named(brings)}
    test_only = {"pytest", "greenlet"}  # `streamwork.testing` ships a pytest plugin
    assert declared - IMPORTED_BY_OTHERS <= used
    assert used <= declared | optional | test_only
