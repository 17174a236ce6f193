"""Draws the pictures of docs/windows.md and docs/joins.md from a run of the pages' examples.

usage: (cd tests; python -m pictures.draw [PAGE])
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pictures import joins, windows
from pictures.windows import Page

REPO = Path(__file__).parents[2]
PICTURES: dict[str, dict[str, Callable[[Page], str]]] = {
    "windows": {
        "windows-by-time": windows.by_time,
        "windows-by-count": windows.by_count,
        "windows-late": windows.late,
    },
    "joins": {
        "join-table": joins.table,
        "join-as-of": joins.as_of,
        "join-within": joins.within,
        "join-static": joins.static,
        "join-lookup": joins.lookup,
    },
}
"""Page -> picture -> what draws it."""


def example(page: str) -> str:
    """The program of a page."""
    text = (REPO / "docs" / f"{page}.md").read_text()
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


def computed(page: str, folder: Path) -> dict[str, Any]:
    """Run the program of a page in a folder. Returns its variables."""
    (folder / "example.py").write_text(example(page))
    with contextlib.chdir(folder):
        return runpy.run_path(str(folder / "example.py"), run_name="example")


def drawn(page: str, variables: Page) -> dict[str, str]:
    """The pictures of a page: name -> SVG."""
    return {name: draw(variables) for name, draw in PICTURES[page].items()}


if __name__ == "__main__":
    for page in sys.argv[1:] or PICTURES:
        with tempfile.TemporaryDirectory() as folder:
            for name, svg in drawn(page, computed(page, Path(os.path.realpath(folder)))).items():
                (REPO / "docs" / "images" / f"{name}.svg").write_text(svg)
