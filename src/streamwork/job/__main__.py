"""``python -m streamwork.job job.py``: the job as a Mermaid diagram, or with ``--text`` as text. Nothing is run."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from streamwork.errors import StreamworkError, WrongUse
from streamwork.job.jobfile import load_job
from streamwork.world import print_anything


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUse("SW-USAGE", message, f"see `{self.prog} --help`")


def main(arguments: list[str] | None = None) -> int:
    """Print the drawing; the exit code is that of the error, if there is one."""
    print_anything()
    parser = _Parser(prog="python -m streamwork.job", description="Draw a job as a Mermaid diagram.")
    parser.add_argument("jobfile", metavar="JOBFILE[:NAME]", help="the file that defines the job")
    parser.add_argument("--text", action="store_true", help="one line per component instead of a diagram")
    try:
        given = parser.parse_args(arguments)
        job = load_job(given.jobfile).job
        drawing = job.describe() if given.text else job.to_mermaid()
    except StreamworkError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(drawing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
