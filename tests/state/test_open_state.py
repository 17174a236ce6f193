"""The state is open: DuckDB and Polars read it in a process that never imports streamwork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sample import expected_journal, payments, run_job, summing_job

DUCKDB = """
import sys, duckdb
rows = duckdb.sql(f'''
    SELECT card, number, total FROM read_parquet('{sys.argv[1]}/*.parquet')
    QUALIFY row_number() OVER (PARTITION BY card ORDER BY __epoch DESC) = 1 AND NOT __deleted ORDER BY card''').fetchall()
"""
POLARS = """
import sys, polars
newest = polars.read_parquet(f'{sys.argv[1]}/*.parquet').sort('__epoch').group_by('card').last()
rows = newest.filter(~polars.col('__deleted')).sort('card').select('card', 'number', 'total').rows()
"""
TELL = """
assert not any(name.split('.')[0] in ('streamwork', 'msgspec', 'pyspark') for name in sys.modules)
print(rows)
"""


@pytest.mark.parametrize("program", [DUCKDB, POLARS], ids=["duckdb", "polars"])
def test_state_opens_without_streamwork(tmp_path: Path, program: str) -> None:
    events = payments(500)
    run_job(summing_job(events, tmp_path / "out.db"), tmp_path / "root")  # 50 epochs: deltas and snapshots
    folder = tmp_path / "root" / "summing" / "state" / "sums" / "0"
    answer = subprocess.run(
        [sys.executable, "-c", program + TELL, str(folder)], capture_output=True, text=True, check=True
    )
    last = {card: (card, number, total) for card, number, total in expected_journal(events)}
    assert answer.stdout.strip() == str([last[card] for card in sorted(last)])
