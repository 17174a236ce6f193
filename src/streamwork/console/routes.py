"""All JSON routes below /api, but those of the server itself (`application`)."""

from __future__ import annotations

from streamwork.console import explain, reads
from streamwork.console.routing import Route

ROUTES: tuple[Route, ...] = (*reads.ROUTES, *explain.ROUTES)
