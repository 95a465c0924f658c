"""`make release VERSION=…`: cut the changelog, set the version, commit, tag, and build.

With `--dry` it shows what would change, and changes nothing.
"""

import argparse
import difflib
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parents[1]
UNRELEASED = "## [Unreleased]"

PLACES = {
    "policyd/__init__.py": '__version__ = "{}"',
    "pyproject.toml": '\nversion = "{}"',
    "charts/policyd/Chart.yaml": "ersion: {}\n",
    "charts/policyd/image/Dockerfile": "REPOSITORY:{} ",
    "docs/guides/install-with-helm.md": "registry.example/policyd:{}",
}
"""Where the version stands, and how: each is set by a release."""


class ReleaseError(Exception):
    """A release cannot be made as things are."""


def changed(root, version, day):
    """Return the files that a release changes, with their texts of before and after.

    Args:
        root: The project's folder.
        version: The version to release, as `1.2.3`.
        day: The day of the release, as `2026-01-31`.

    Raises:
        ReleaseError: If the version cannot be released, or there is nothing to release.
    """
    log = (root / "CHANGELOG.md").read_text()
    texts = {"CHANGELOG.md": (log, cut(log, version, day))}
    current = re.search(r'__version__ = "([^"]+)"', (root / "policyd/__init__.py").read_text())[1]
    if _parsed(version) < _parsed(current):
        raise ReleaseError(f"version `{version}` is older than `{current}`: give a newer one")
    for path, form in PLACES.items():
        before = (root / path).read_text()
        if form.format(current) not in before:
            raise ReleaseError(f"`{path}` does not have version `{current}`: correct it first")
        texts[path] = before, before.replace(form.format(current), form.format(version))
    return {path: pair for path, pair in texts.items() if pair[0] != pair[1]}


def _parsed(version):
    try:
        parsed = Version(version)
    except InvalidVersion:
        parsed = None
    if parsed is None or not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"`{version}` is not a version: give one such as `1.2.3`")
    return parsed


def cut(log, version, day):
    """Return a changelog whose unreleased section is that of a version."""
    head, found, rest = log.partition(f"{UNRELEASED}\n")
    section = re.split(r"^## \[", rest, maxsplit=1, flags=re.MULTILINE)[0]
    if f"## [{version}]" in log:
        raise ReleaseError(f"CHANGELOG.md has `{version}` already: give a newer version")
    if not found or not re.search(r"^- ", section, re.MULTILINE):
        raise ReleaseError("CHANGELOG.md has no unreleased change: there is nothing to release")
    return f"{head}{UNRELEASED}\n\n## [{version}] - {day}\n{rest}"


def git(root, *words):
    """Run git in the project, and return what it prints."""
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"`git {words[0]}` failed: {done.stderr.strip()}")
    return done.stdout


def release(root, version, *, day, dry, build=True):
    """Make a release, or show it."""
    texts = changed(root, version, day)
    if git(root, "tag", "--list", f"v{version}").strip():
        raise ReleaseError(f"tag `v{version}` exists: give a newer version")
    if dry:
        for path, (before, after) in texts.items():
            lines = before.splitlines(), after.splitlines()
            print(*difflib.unified_diff(*lines, path, path, lineterm="", n=1), sep="\n")
        print(f"would commit and tag v{version}, and build into dist/")
        return
    if git(root, "status", "--porcelain").strip():
        raise ReleaseError("there are changes that are not committed: commit or stash them first")
    for path, (_, after) in texts.items():
        (root / path).write_text(after)
    git(root, "commit", "--quiet", "--message", f"Release {version}", "--", *texts)
    git(root, "tag", "--annotate", f"v{version}", "--message", f"policyd {version}")
    if build:
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", "."]
        subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    print(f"released {version}: push the commit and tag v{version}, publish dist/")


def main():
    """Release what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("version")
    parser.add_argument("--dry", action="store_true", help="show what would change")
    given = parser.parse_args()
    today = datetime.now(UTC).date().isoformat()
    try:
        release(ROOT, given.version, day=today, dry=given.dry)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
