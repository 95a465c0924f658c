"""Which files of a folder are policies."""

import errno
import os
from contextlib import nullcontext
from itertools import chain, count, repeat
from pathlib import Path

import pytest

from policyd.policy_files import MOST_BYTES, FileError, policy_files, read_file


def test_a_folder_is_its_policies_without_cases_kustomization_and_what_is_hidden(tmp_path):
    for name in ("b/policy.yaml", "a.json", "a/.git/x.yaml", "b/cases.yaml", "b/README.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    (tmp_path / "kustomization.yaml").touch()

    found = policy_files([tmp_path])

    assert found == [tmp_path / "a.json", tmp_path / "b" / "policy.yaml"]


def test_a_named_file_is_read_under_any_name(tmp_path):
    file = tmp_path / "cases.yaml"

    assert policy_files([file, file]) == [file]


@pytest.fixture
def outside(tmp_path):
    """A folder of policies beside one that holds a secret; returns both."""
    folder, secret = tmp_path / "policies", tmp_path / "secret"
    for each in (folder, secret):
        each.mkdir()
    (folder / "own.yaml").write_text("own: 1")
    (secret / "key.yaml").write_text("key: 1")
    return folder, secret


def found_in(folder):
    left_out = {}
    files = policy_files([folder], lambda file, why: left_out.update({file.name: why}))
    return [file.name for file in files], left_out


def to_a_file(folder, secret):
    (folder / "a.yaml").symlink_to(secret / "key.yaml")


def to_a_folder(folder, secret):
    (folder / "a").symlink_to(secret)


def by_a_chain(folder, secret):
    (folder / "b").symlink_to("c.txt")
    (folder / "c.txt").symlink_to("../secret/key.yaml")
    (folder / "a.yaml").symlink_to("b")


def by_a_folder_inside(folder, secret):
    (folder / "inner").mkdir()
    (folder / "inner" / "up").symlink_to("../..")
    (folder / "a.yaml").symlink_to("inner/up/secret/key.yaml")


def beside_of_a_like_name(folder, secret):
    other = folder.with_name("policies-of-others")
    secret.rename(other)
    (folder / "a.yaml").symlink_to(other / "key.yaml")


def to_the_root(folder, _secret):
    (folder / "a").symlink_to("/")


OUT = "it leads out of the folder"


@pytest.mark.parametrize(
    ("link", "name"),
    [
        (to_a_file, "a.yaml"),
        (to_a_folder, "a"),
        (by_a_chain, "a.yaml"),
        (by_a_folder_inside, "a.yaml"),
        (beside_of_a_like_name, "a.yaml"),
        (to_the_root, "a"),
    ],
)
def test_a_link_that_leads_out_of_the_folder_is_not_followed(outside, link, name):
    link(*outside)

    files, left_out = found_in(outside[0])

    assert files == ["own.yaml"]
    assert left_out[name] == OUT


def test_links_inside_the_folder_are_followed_as_of_a_config_map(tmp_path):
    version = tmp_path / "..2026_11_23"
    (version / "sub").mkdir(parents=True)
    (version / "a.yaml").touch()
    (version / "sub" / "b.yaml").touch()
    (tmp_path / "..data").symlink_to(version.name)
    (tmp_path / "a.yaml").symlink_to("..data/a.yaml")
    (tmp_path / "sub").symlink_to("..data/sub")

    assert policy_files([tmp_path]) == [tmp_path / "a.yaml", tmp_path / "sub" / "b.yaml"]


def test_a_folder_that_is_named_may_be_a_link_itself(outside):
    link = outside[0].with_name("link")
    link.symlink_to(outside[0])

    assert policy_files([link]) == [link / "own.yaml"]


def test_links_that_go_round_end(outside):
    folder, _ = outside
    (folder / "a.yaml").symlink_to("b.yaml")
    (folder / "b.yaml").symlink_to("a.yaml")
    (folder / "inner").mkdir()
    (folder / "inner" / "again").symlink_to("..")

    files, left_out = found_in(folder)

    assert files == ["own.yaml"]
    assert set(left_out) == {"a.yaml", "b.yaml"}


def test_other_things_than_files_are_reported_and_not_opened(outside):
    folder, _ = outside
    os.mkfifo(folder / "pipe.yaml")
    (folder / "zero.yaml").symlink_to("/dev/zero")
    (folder / "gone.yaml").symlink_to("nowhere")

    files, left_out = found_in(folder)

    assert files == ["own.yaml"]
    assert left_out == {
        "pipe.yaml": "it is not a file",
        "zero.yaml": OUT,
        "gone.yaml": "no such file or directory",
    }


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "."])
def test_only_files_are_read(tmp_path, name):
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises((FileError, OSError)):
        read_file(tmp_path / name)


def test_a_shells_pipe_is_read_if_that_is_meant(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, b"a: 1")
    os.close(writing)

    assert read_file(Path(f"/dev/fd/{reading}"), pipes=True) == b"a: 1"
    os.close(reading)


def test_a_file_that_is_too_long_is_not_read(tmp_path):
    with (tmp_path / "long").open("wb") as file:
        file.truncate(MOST_BYTES + 1)

    with pytest.raises(FileError, match="has more than 67,108,864 bytes"):
        read_file(tmp_path / "long")


@pytest.mark.parametrize("settles", [True, False])
def test_a_file_is_read_as_it_was_at_one_time(tmp_path, monkeypatch, settles):
    file = tmp_path / "a.yaml"
    file.write_text("whole")
    sizes = chain([1, 2, 3], repeat(4)) if settles else count()
    real = os.fstat

    def changing(descriptor):
        fields = list(real(descriptor))
        fields[6] = next(sizes)
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", changing)
    with nullcontext() if settles else pytest.raises(FileError, match="changes while it is read"):
        assert read_file(file) == b"whole"


def test_a_folder_in_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").touch()
    locked = tmp_path / "locked"
    locked.mkdir()
    listed = Path.iterdir

    def iterdir(folder):
        if folder == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)

    with pytest.raises(FileError, match="locked`: permission denied"):
        policy_files([tmp_path])


def test_a_folder_that_is_gone_since_it_was_listed_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "own.yaml").touch()
    gone = tmp_path / "gone"
    gone.mkdir()
    listed = Path.iterdir

    def iterdir(folder):
        if folder == gone:
            gone.rmdir()
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", iterdir)

    assert [file.name for file in policy_files([tmp_path])] == ["own.yaml"]


def test_a_folder_has_so_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr("policyd.policy_files.MOST_FILES", 2)
    for number in range(3):
        (tmp_path / f"{number}.yaml").touch()

    with pytest.raises(FileError, match="has more than 2 policy files"):
        policy_files([tmp_path])
