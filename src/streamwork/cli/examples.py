"""`example`: the files of examples/, which are part of the package, or of the repository that it was installed from."""

from __future__ import annotations

from pathlib import Path

import streamwork
from streamwork.errors import WrongUse


def example(name: str) -> Path:
    """A file or folder of examples/. Raises WrongUse if it is not there."""
    package = Path(streamwork.__file__).parent
    places = (package / "_examples" / name, package.parents[1] / "examples" / name)
    for place in places:
        if place.exists():
            return place
    raise WrongUse(
        "SW-EXAMPLE-MISSING",
        f"the example {name} is neither in {places[0].parent} nor in {places[1].parent}",
        "install a package that was built from a whole repository, or clone the repository and run `make demo` there",
    )
