"""The pictures of the guides to windows and joins are those that a run of the guides' examples draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pictures.draw import PICTURES, REPO, computed, drawn
from pictures.svg import DARK, LIGHT, lanes

ANOTHER_RUN: dict[str, dict[str, Any]] = {
    "windows": {
        "closed": {"fixed": [], "sliding": [], "sessions": []},
        "full": {"fixed_count": [], "sliding_count": []},
        "corrected": [],
    },
    "joins": {"emission": [], "prices": [], "attribution": [], "cities": [], "looked_up": []},
}
"""What the examples would have computed if nothing had been emitted."""


@pytest.mark.parametrize("page", PICTURES)
def test_a_run_draws_the_tracked_pictures(tmp_path: Path, page: str) -> None:
    """The examples hold, too: each page asserts what it shows."""
    text = (REPO / "docs" / f"{page}.md").read_text()
    variables = computed(page, tmp_path)
    for name, svg in drawn(page, variables).items():
        assert f"](images/{name}.svg)" in text, name
        assert (REPO / "docs" / "images" / f"{name}.svg").read_text() == svg, "run: (cd tests; python -m pictures.draw)"
    for name, other in drawn(page, {**variables, **ANOTHER_RUN[page]}).items():
        assert (REPO / "docs" / "images" / f"{name}.svg").read_text() != other, f"control: {name} ignores the results"


def test_light_and_dark_name_the_same_colours_and_can_be_read() -> None:
    assert LIGHT.keys() == DARK.keys()
    for colours in (LIGHT, DARK):
        for name in colours:
            ground = colours.get(f"{name}-fill", colours["page"])
            if name not in ("page", "grid") and "fill" not in name:
                assert min(contrast(colours[name], colours["page"]), contrast(colours[name], ground)) >= 4.5, name


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    return sum(part * weight for part, weight in zip(linear, (0.2126, 0.7152, 0.0722), strict=True))


def test_spans_that_overlap_are_in_different_lanes() -> None:
    assert lanes([(0, 10), (5, 15), (10, 20), (12, 22)]) == [0, 1, 0, 2]
