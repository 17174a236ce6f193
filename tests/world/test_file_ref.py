"""Files that a manifest names, and sealed files: only the bytes that were written are ever returned."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamwork.epoch.sealed import read_sealed, to_bytes
from streamwork.errors import Refused
from streamwork.testing.disk import SimulatedDisk
from streamwork.world import Disk, FileKind, FileRef, RealDisk

KIND = FileKind("SW-STATE-DAMAGED", "restore it", noun="the thing")
PATH = "state/sums/0/one.parquet"


class Note(msgspec.Struct, frozen=True):
    number: int
    text: str
    seal: str = ""


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../b", "a//b", "", "a\\b", "a\0b", "./a"])
def test_a_path_that_leads_out_of_the_folder_is_no_file_ref(path: str) -> None:
    with pytest.raises(ValueError, match="path inside"):
        FileRef(path, "", 0, 0)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode({"path": path, "sha256": "", "rows": 0, "bytes": 0}), type=FileRef)


def test_numbers_below_zero_are_no_file_ref() -> None:
    for rows, size in ((-1, 0), (0, -1)):
        with pytest.raises(ValueError, match="negative"):
            FileRef("a", "", rows, size)


def test_the_json_of_a_file_ref() -> None:
    """Manifests of every version hold it so."""
    ref = FileRef(PATH, "ab", 3, 7)
    assert msgspec.json.encode(ref) == b'{"path":"state/sums/0/one.parquet","sha256":"ab","rows":3,"bytes":7}'


@pytest.mark.parametrize("disk", [SimulatedDisk(), RealDisk()], ids=["simulated", "real"])
def test_a_file_is_read_as_it_was_written(disk: Disk, tmp_path: Path) -> None:
    ref = FileRef.write(disk, tmp_path, PATH, b"content", 3)
    assert (ref.path, ref.rows, ref.bytes) == (PATH, 3, 7)
    assert ref.read(disk, tmp_path, KIND) == b"content" == ref.map(disk, tmp_path, KIND).to_pybytes()
    with pytest.raises(FileExistsError):
        FileRef.write(disk, tmp_path, PATH, b"other", 3)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "is missing": Path.unlink,
    "is a folder, not a file": _folder,
    r"is not what its checkpoint recorded \(its sha256 differs\)": lambda path: path.write_bytes(b"Content"),
}


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("how", ["read", "map"])
def test_a_damaged_file_is_named(tmp_path: Path, what: str, how: str) -> None:
    ref = FileRef.write(RealDisk(), tmp_path, PATH, b"content", 3)
    DAMAGES[what](tmp_path / PATH)
    with pytest.raises(Refused, match=f"SW-STATE-DAMAGED: the thing .*one.parquet {what}") as refused:
        getattr(ref, how)(RealDisk(), tmp_path, KIND)
    assert refused.value.action == "restore it"


def test_a_file_behind_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    ref = FileRef.write(RealDisk(), tmp_path / "elsewhere", "one", b"content", 3)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "one").symlink_to(tmp_path / "elsewhere" / "one")
    with pytest.raises(Refused, match="SW-PATH-OUTSIDE"):
        ref.read(RealDisk(), tmp_path / "job", KIND)


@given(st.integers(), st.text(), st.data())
def test_no_change_of_a_sealed_file_is_believed(number: int, text: str, data: st.DataObject) -> None:
    """Also a change that is still JSON of the right type."""
    disk, path = SimulatedDisk(), Path("/note.json")
    note = Note(number % 2**60, text)
    written = to_bytes(note)
    disk.create(path, written)
    read = read_sealed(disk, path, Note, KIND)
    assert (read.number, read.text) == (note.number, note.text)
    place = data.draw(st.integers(0, len(written) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != written[place]))
    disk.replace(path, written[:place] + bytes([byte]) + written[place + 1 :])
    with pytest.raises(Refused, match="SW-STATE-DAMAGED: the thing /note.json (cannot be read|was changed)"):
        read_sealed(disk, path, Note, KIND)


def test_the_checks_can_fail(tmp_path: Path) -> None:
    """The negative control: without the hash and without the seal, changed content is returned."""
    ref = FileRef.write(RealDisk(), tmp_path, PATH, b"content", 3)
    DAMAGES[r"is not what its checkpoint recorded \(its sha256 differs\)"](tmp_path / PATH)
    assert RealDisk().read(tmp_path / ref.path) == b"Content"
    changed = to_bytes(Note(1, "a")).replace(b'"a"', b'"b"')
    assert msgspec.json.decode(changed, type=Note).text == "b"
