"""Docstrings, comments, messages and pages are plain technical English: no riddle words.

Every module of the package is checked.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
SOURCE = REPO / "src" / "streamwork"

RIDDLES = {
    "nobody": r"nobody",
    "somebody": r"somebody",
    "whoever": r"whoever",
    "whatever": r"whatever",
    "come to nothing": r"(come|comes|came|coming) to nothing",
    "in vain": r"in vain",
    "let go": r"(let|lets|letting) (it |them |the \w+ )?go",
    "mend": r"mend(s|ed|ing)?",
    "tell": r"tell(s|ing)?|told",
    "for people": r"for people",
    "any more": r"any more",
    "become of": r"(become|becomes|became) of",
    "has to say": r"(has|have) to say",
    "look at": r"look(s|ed|ing)? at",
    "is asked": r"(is|are|was|were) asked",
    "anew": r"anew",
}
"""Word -> the expression that finds it. Each stands for something that technical English says more exactly."""

PLAIN = {
    "docs/semantics.md": ["it was asked for A twice"],  # of the bank in the example
}
"""Page or module -> phrases that use a word in its plain sense."""

_WORD = {name: re.compile(rf"\b({pattern})\b", re.IGNORECASE) for name, pattern in RIDDLES.items()}
_NAMES = re.compile(r"``.*?``|`[^`]*`|\{[^{}]*\}")


def riddles(text: str) -> list[str]:
    """The riddle words of a text. Names in backticks, and values in braces, are no words."""
    plain = _NAMES.sub("", text)
    return [name for name, pattern in _WORD.items() if pattern.search(plain)]


def texts(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings, comments and messages of a module, each with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def prose(page: str) -> Iterator[tuple[int, str]]:
    """The lines of a page, without commands and output. Comments in Python examples are read, too."""
    language = None
    for number, line in enumerate(page.splitlines(), 1):
        if line.startswith("```"):
            language = None if language is not None else line[3:]
        elif language is None:
            yield number, line
        elif language == "python" and "#" in line:
            yield number, line.partition("#")[2]


def found(path: Path) -> list[str]:
    name = path.relative_to(REPO).as_posix()
    lines = texts(path.read_text()) if path.suffix == ".py" else prose(path.read_text())
    return [
        f"{name}:{number}: {', '.join(words)}: {text.strip()[:160]}"
        for number, text in lines
        if (words := riddles(text)) and not any(phrase in text for phrase in PLAIN.get(name, ()))
    ]


def pages() -> list[Path]:
    """Every page but dated notes, which are history; and the examples."""
    chosen = [REPO / "README.md", REPO / "CONTRIBUTING.md", REPO / "docs" / "benchmarks" / "README.md"]
    return [*chosen, *(REPO / "docs").glob("*.md"), *(REPO / "examples").rglob("*")]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: path.relative_to(SOURCE).as_posix())
def test_a_module_is_written_in_plain_english(path: Path) -> None:
    assert found(path) == []


def test_pages_and_examples_are_written_in_plain_english() -> None:
    assert [line for path in pages() if path.suffix in (".md", ".py") for line in found(path)] == []


def test_the_checker_finds_a_riddle_and_no_names() -> None:
    module = '"""What nobody needs any more."""\n\nvalue = f"{told} mend the file"  # whatever it is\n'
    assert [riddles(text) for _, text in texts(module)] == [["nobody", "any more"], ["mend"], ["whatever"]]
    assert list(texts("told = mend(whatever)\n")) == []
    assert riddles("`told` and {mend.whatever}, recommended") == []
    assert [
        number
        for number, text in prose("look at it\n```sh\nmend # told\n```\n```python\n1  # told\n```")
        if riddles(text)
    ] == [1, 6]
