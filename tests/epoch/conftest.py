"""Fixtures of the fault matrix (`tests/matrix`)."""

from matrix.fixtures import folder, short_chains  # noqa: F401  (fixtures)
