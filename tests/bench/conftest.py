"""Servers for benchmarks that need one."""

from __future__ import annotations

from servers import kafka, redis_server  # noqa: F401  (fixtures)
