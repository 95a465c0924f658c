"""A release in a clone: what it changes, tags and builds, and what it refuses."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.version import Version

from policyd import __version__
from tests import release

PROJECT = Path(__file__).parents[1]
OLD = "## [0.0.9] - 2026-01-01\n\n- Old.\n"
LOG = f"# Changelog\n\n## [Unreleased]\n\n### Added\n\n- A word.\n\n{OLD}"
MAJOR = int(__version__.partition(".")[0]) + 1
NEXT = f"{MAJOR}.0.0"


@pytest.fixture
def clone(tmp_path):
    """A repository with what the packages need, the files that say the version, and a change."""
    names = ["pyproject.toml", "README.md", "LICENSE", "docs/examples/pod.yaml", *release.PLACES]
    for name in [*names, "webhooks/__init__.py", "policies/kustomization.yaml", ".gitignore"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((PROJECT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text(LOG)
    release.git(tmp_path, "init", "--quiet")
    for name, value in (("name", "A Person"), ("email", "person@example.com")):
        release.git(tmp_path, "config", f"user.{name}", value)
    release.git(tmp_path, "add", ".")
    release.git(tmp_path, "commit", "--quiet", "--message", "Begin")
    return tmp_path


def test_a_release_cuts_the_changelog_sets_versions_tags_and_builds(clone):
    release.release(clone, NEXT, day="2026-02-03", dry=False)

    log = (clone / "CHANGELOG.md").read_text()
    assert f"## [Unreleased]\n\n## [{NEXT}] - 2026-02-03\n\n### Added\n\n- A word.\n" in log
    for path, form in release.PLACES.items():
        assert form.format(NEXT) in (clone / path).read_text()
        assert form.format(__version__) not in (clone / path).read_text()
    assert release.git(clone, "status", "--porcelain") == ""
    assert release.git(clone, "describe").strip() == f"v{NEXT}"
    assert sorted(path.name for path in (clone / "dist").iterdir()) == [
        f"policyd-{NEXT}-py3-none-any.whl",
        f"policyd-{NEXT}.tar.gz",
    ]


def test_a_dry_run_shows_changes_and_makes_none(clone, capsys):
    release.release(clone, NEXT, day="2026-02-03", dry=True)

    shown = capsys.readouterr().out
    assert f"+## [{NEXT}] - 2026-02-03" in shown
    assert f'+__version__ = "{NEXT}"' in shown
    assert (clone / "CHANGELOG.md").read_text() == LOG
    assert release.git(clone, "tag") == ""


def test_the_current_version_can_be_released_once(clone):
    release.release(clone, __version__, day="2026-02-03", dry=False, build=False)

    with pytest.raises(release.ReleaseError, match="already"):
        release.release(clone, __version__, day="2026-02-03", dry=False)


@pytest.mark.parametrize(
    ("version", "message"),
    [
        pytest.param("1.2", "`1.2` is not a version", id="two-numbers"),
        pytest.param("v1.2.3", "`v1.2.3` is not a version", id="with-a-letter"),
        pytest.param("0.0.1", "is older than", id="older"),
    ],
)
def test_other_versions_are_refused(clone, version, message):
    with pytest.raises(release.ReleaseError, match=re.escape(message)):
        release.release(clone, version, day="2026-02-03", dry=True)


def test_uncommitted_changes_are_not_released(clone):
    (clone / "README.md").write_text("changed")

    with pytest.raises(release.ReleaseError, match="not committed"):
        release.release(clone, NEXT, day="2026-02-03", dry=False)
    assert (clone / "CHANGELOG.md").read_text() == LOG


def test_without_a_change_there_is_nothing_to_release():
    with pytest.raises(release.ReleaseError, match="nothing to release"):
        release.cut("## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- Old.\n", "0.2.0", "2026-02-03")


def test_the_command_says_what_is_wrong_in_one_line():
    command = [sys.executable, "-m", "tests.release", "one", "--dry"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.count("\n") == 1


def test_the_versions_of_this_project_agree():
    for path, form in release.PLACES.items():
        assert form.format(__version__) in (PROJECT / path).read_text(), path


def test_the_changelog_is_in_the_form_of_keep_a_changelog():
    text = (PROJECT / "CHANGELOG.md").read_text()
    first, *versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    numbers = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d", each)[1] for each in versions]

    assert first == "[Unreleased]"
    assert numbers[0] == __version__
    assert numbers == sorted(numbers, key=Version, reverse=True)
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
