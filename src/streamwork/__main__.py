"""The program ``streamwork``, also ``python -m streamwork``: the command line with the benchmarks."""

from __future__ import annotations

from streamwork.bench.commands import bench_group
from streamwork.cli.main import cli, main

__all__ = ["cli", "main"]

cli.add_command(bench_group)

if __name__ == "__main__":
    main()
