"""A file is whole or absent, and a place that cannot be written is named before the work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spd_lib.files import check_file, check_folder, whole_file


def test_a_file_appears_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new" / "table.json"
    with whole_file(path) as place:
        place.write_text("half")
        assert not path.exists()
    assert path.read_text() == "half" and os.listdir(path.parent) == ["table.json"]


def test_after_an_error_all_is_as_before(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), whole_file(path) as place:
        place.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["table.json"]


def test_links_and_devices_stay_what_they_are(tmp_path: Path) -> None:
    path, link = tmp_path / "table.json", tmp_path / "latest.json"
    link.symlink_to(path)
    with whole_file(link) as place:
        place.write_text("new")
    assert link.is_symlink() and path.read_text() == "new"
    check_file(Path(os.devnull))
    with whole_file(Path(os.devnull)) as place:
        place.write_text("gone")
    assert not Path(os.devnull).is_file()


def test_a_full_device_is_named() -> None:
    with (
        pytest.raises(OSError, match="cannot write '/dev/full': No space left"),
        whole_file(Path("/dev/full")) as place,
    ):
        place.write_text("x" * 100_000)


def test_the_longest_name_that_there_is(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    check_file(path)
    with whole_file(path) as place:
        place.write_text("new")
    assert os.listdir(tmp_path) == [path.name]
    with pytest.raises(OSError, match="name too long"):
        check_file(tmp_path / ("n" * 256))


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    for name, end in (("dangling", "missing"), ("loop", "loop")):
        (tmp_path / name).symlink_to(tmp_path / end)
        with pytest.raises(OSError, match="the link leads nowhere"):
            check_folder(tmp_path / name)


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    asked, link = tmp_path / "asked.jsonl", tmp_path / "link"
    asked.write_text("")
    link.symlink_to(asked)
    check_file(tmp_path / "new.json", asked)
    check_file(asked, Path("own"))
    for path in (asked, link):
        with pytest.raises(OSError, match="is what is read here: name another file"):
            check_file(path, asked)


def test_places_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text("old")
    for name in ("old.json", "new.json", "new/deep/table.json"):
        check_file(tmp_path / name)
    check_folder(tmp_path / "new" / "deep")
    assert os.listdir(tmp_path) == ["old.json"] and (tmp_path / "old.json").read_text() == "old"


@pytest.mark.parametrize("place", ["", ".", "..", "/proc"])
def test_a_folder_is_no_file(place: str) -> None:
    with pytest.raises(OSError, match="is a folder: name a file in it"):
        check_file(Path(place))


@pytest.mark.parametrize("place", ["/proc/nothere", "/proc/deep/nothere", f"{__file__}/deep"])
def test_places_that_cannot_be_written(place: str) -> None:
    for check in (check_folder, check_file):
        with pytest.raises(OSError, match=f"cannot write into .*{Path(place).parts[1]}"):
            check(Path(place) / "x")
