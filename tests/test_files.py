"""Files that are written whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from ansor.files import whole_file


def write(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


def fail(path: Path) -> None:
    with whole_file(path) as file:
        file.write(b"half")
        raise RuntimeError


def test_a_file_is_replaced_when_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old")
    path.chmod(0o600)
    with whole_file(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a"
    write(path, b"old")
    with pytest.raises(RuntimeError):
        fail(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "missing" / "a", b"x")


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_is_for_those_whom_the_process_lets(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "a", b"new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~umask


def test_links_devices_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    target, link, pipe = tmp_path / "target", tmp_path / "link", tmp_path / "pipe"
    target.write_bytes(b"old")
    link.symlink_to(target)
    write(link, b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    ends = os.pipe()
    write(Path(f"/dev/fd/{ends[1]}"), b"by number")  # A link that leads to no path.
    os.close(ends[1])
    assert os.read(ends[0], 100) == b"by number"
    os.close(ends[0])
    write(Path(os.devnull), b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
