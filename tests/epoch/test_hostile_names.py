"""Names in files are used as paths: one that leads out of the job's folder is refused, sealed or not, and nothing is touched."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.promises import EVENTS, world_of
from matrix.world import World
from streamwork import Refused
from streamwork.epoch.store import Store
from streamwork.world import RealDisk, check_relative, inside

pytestmark = pytest.mark.usefixtures("short_chains")
HOSTILE = ["../../victim", "/VICTIM", "state/../../../victim", "outputs/./x", "", "..", "a//b", "a\\b", "a\0b"]


def sealed(manifest: dict[str, Any]) -> bytes:
    """As the driver writes it: its hash is right."""

    def text(value: dict[str, Any]) -> bytes:
        return msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=1) + b"\n"

    seal = hashlib.sha256(text({**manifest, "seal": ""})).hexdigest()
    return text({**manifest, "seal": seal})


def in_taken(manifest: dict[str, Any], name: str) -> None:
    manifest["taken"] = [name]


def in_state(manifest: dict[str, Any], name: str) -> None:
    manifest["components"]["sums"]["0"][0]["path"] = name


def in_failed(manifest: dict[str, Any], name: str) -> None:
    manifest["failed"] = [{"path": name, "sha256": "", "rows": 0, "bytes": 0}]


def in_letters(manifest: dict[str, Any], name: str) -> None:
    manifest["letters"] = {"sums": {"0": {"path": name, "sha256": "", "rows": 0, "bytes": 0}}}


def as_component(manifest: dict[str, Any], name: str) -> None:
    manifest["letters"] = {name: {}}


PLACES = [in_taken, in_state, in_failed, in_letters, as_component]


def run(folder: Path) -> World:
    world = world_of(folder, "acknowledging")
    world.live(EVENTS[:18]).survived()
    return world


def spoil(world: World, change: Callable[[dict[str, Any], str], None], name: str) -> None:
    """Both copies of every manifest, sealed again."""
    for path in world.home.glob("checkpoints/*.json"):
        if not path.name.endswith(".plan.json"):
            manifest = json.loads(path.read_bytes())
            if manifest["epoch"]:
                change(manifest, name)
                path.write_bytes(sealed(manifest))


@pytest.mark.parametrize("change", PLACES)
@pytest.mark.proves("a manifest names a path outside the job's folder")
def test_a_manifest_that_names_a_path_outside_is_refused(folder: Path, change: Any) -> None:
    world = run(folder)
    victim = folder / "victim"
    for name in HOSTILE:
        victim.write_text("not yours")
        spoil(world, change, name.replace("/VICTIM", str(victim)))
        life = world.live(EVENTS)
        told = str(life.error) if life.started is None else "".join(life.started.story)
        assert life.code == "SW-CHECKPOINT-NONE" or (life.started is not None and life.started.resumed_at == 0), name
        assert "is no" in told, name
        assert victim.read_text() == "not yours"


def test_a_sealed_manifest_is_read(folder: Path) -> None:
    """The control of the test above: it is the name that is refused."""
    world = run(folder)
    spoil(world, lambda manifest, name: None, "")
    world.live(EVENTS).survived()


def test_a_link_that_leads_out_of_the_folder_is_refused(folder: Path) -> None:
    world = run(folder)
    elsewhere = folder / "elsewhere"
    (world.home / "state").rename(elsewhere)
    (world.home / "state").symlink_to(elsewhere)
    before = {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()}
    assert world.live(EVENTS).code in ("SW-PATH-OUTSIDE", "SW-CHECKPOINT-NONE")
    assert {path: path.read_bytes() for path in elsewhere.rglob("*") if path.is_file()} == before


def test_discard_and_quarantine_stay_inside(tmp_path: Path) -> None:
    store = Store(RealDisk(), tmp_path / "root", "job")
    store.folder.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("not yours")
    for name in ("../../victim", str(victim)):
        with pytest.raises(Refused, match="SW-PATH-OUTSIDE"):
            store.discard_files([name])
        with pytest.raises(Refused, match="SW-PATH-OUTSIDE"):
            store.quarantine(1, name)
    assert victim.exists()


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "/", "\\"]), min_size=1, max_size=6))
def test_what_is_accepted_is_inside(parts: list[str]) -> None:
    name, top = "/".join(parts), Path("/nowhere/job")
    try:
        found = inside(top, name)
    except Refused:
        with pytest.raises(ValueError, match="inside"):
            check_relative(name)
    else:
        assert found.resolve().is_relative_to(top) and found != top
