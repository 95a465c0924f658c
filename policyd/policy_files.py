"""The files in which policies are kept: those that are named, and those of the folders named."""

from collections.abc import Iterable
from pathlib import Path

import yaml

SUFFIXES = frozenset({".yaml", ".yml", ".json"})
"""What a policy file of a folder ends in; a file that is named itself may end in anything."""

CASES = "cases.yaml"
"""The cases beside a policy: no policies themselves."""

KYVERNO_TEST = "kyverno-test.yaml"
"""What Kyverno calls a file of tests."""

KUSTOMIZATION = "kustomization.yaml"
"""Names the files of a folder that are wanted, and is no policy itself."""


def policy_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files, and the YAML and JSON files of the folders.

    Each file is named once, in the order of `paths`, a folder's files in the order of their names.
    What is hidden in a folder, tests and a kustomization are left out.
    """
    files = (file for path in paths for file in _files(path))
    return list(dict.fromkeys(files))


def default_files(library: Path) -> list[Path]:
    """Return the files of a library's policies that are installed unless others are chosen."""
    chosen = yaml.safe_load((library / KUSTOMIZATION).read_text())["resources"]
    return [library / name for name in chosen]


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if _is_policy_file(file, path))


def _is_policy_file(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    besides = hidden or file.name in (CASES, KYVERNO_TEST, KUSTOMIZATION)
    return file.suffix in SUFFIXES and not besides and file.is_file()
