"""One variant, by its name, with the servers that it needs."""

from __future__ import annotations

from typing import Any

from streamwork.bench.contest import Note
from streamwork.bench.ysb import baseline, generator, million, rates, state, throughput
from streamwork.errors import WrongUse


def run(variant: str, kafka: str | None, redis: str | None, quick: bool, note: Note) -> dict[str, Any]:
    """Measure and return all figures."""
    match variant:
        case "baseline":
            servers, url = _needed("kafka", kafka, variant), _needed("redis", redis, variant)
            return baseline.run(servers, url, sizes=baseline.QUICK if quick else baseline.FULL, note=note)
        case "state":
            servers = _needed("kafka", kafka, variant)
            return state.run(servers, sizes=state.QUICK if quick else state.FULL, note=note)
        case "generator":
            servers = _needed("kafka", kafka, variant)
            return generator.run(servers, sizes=generator.QUICK if quick else generator.FULL, note=note)
        case "million":
            url = _needed("redis", redis, variant)
            return million.run(url, sizes=million.QUICK if quick else million.FULL, note=note)
        case "rates" | "batches":
            servers = _needed("kafka", kafka, variant)
            chosen = rates.RATES if variant == "rates" else rates.BATCHES
            return rates.run(servers, sizes=rates.QUICK if quick else chosen, note=note)
        case _:
            return throughput.run(variant, sizes=throughput.QUICK if quick else throughput.FULL, note=note)


def _needed(server: str, address: str | None, variant: str) -> str:
    if address is None:
        raise WrongUse(
            "SW-USAGE",
            f"the variant {variant} needs a server: --{server}",
            f"start one for the time of the run: python tests/real_servers.py streamwork bench ysb --variant {variant} "
            f"--{server} {{{server}}}",
        )
    return address
