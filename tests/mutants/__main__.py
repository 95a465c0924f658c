"""Put N small errors into the product, one at a time, and see which of them no test notices.

    python -m tests.mutants 300 [--seed 1] [--only policyd/alloc] [--json FILE]

First, the tests of the folders that have errors run once, so that it is known which of them come to
which line; with errors in all folders, also those of others that use them. Then each error is tried
by the tests that come to its line, the most specific ones first; what they let pass, by the suites
from outside, where they are at hand, and by simulated histories.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from coverage import CoverageData
from rich.console import Console
from rich.progress import track

from tests.mutants.sites import FOLDERS, Mutant, chosen

ROOT = Path(__file__).parents[2]
OTHER_TESTS = ("tests/optimize", "tests/simulate", "tests/devices", "tests/multikueue")
"""Of what uses the folders with errors."""
MOST_TESTS = 400
"""Tests that try one mutant."""
TEST_SECONDS = 120
"""CPU time that they may take: a mutant that hangs is noticed, on a busy machine as well."""
SLOWNESS = 20
"""Seconds that may pass for one of CPU time: a mutant that waits for ever is noticed, too."""
CASES = Path(os.environ.get("POLICYD_CASES") or ROOT.parent / "shared" / "cases")
LATER = {"outside": ("tests.conformance", "--suite", "kueue-core")} if CASES.is_dir() else {}
LATER["histories"] = ("tests.histories", "-n", "40", "--processes", "1", "--stories", "0")
"""What tries a mutant that the tests let pass."""
NAMES = "tests-to-run.txt"
"""The file of a copy with the names of tests: they are too many for a command line."""
GOAL = 0.9

Place = tuple[str, int]
"""A file, and a line of it."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant: who noticed it, empty if it survived."""

    mutant: Mutant
    killer: str


def copied(folder: Path) -> Path:
    """Copy the project into a folder, without what is built."""
    unwanted = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder, ignore=unwanted, symlinks=True))


def failure(folder: Path, *command: str, seconds: int = TEST_SECONDS) -> str:
    """Run a module of Python on a copy; return its last words if it does not end well, in time."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "POLICYD_CASES": str(CASES)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # each start would compile all source
    limited = f'ulimit -t {seconds}; exec "$@"'
    try:
        done = subprocess.run(
            ("sh", "-c", limited, "sh", sys.executable, "-m", *command),
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds * SLOWNESS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "it does not end"
    return done.stdout[-2000:] + f"\nexit code {done.returncode}" if done.returncode else ""


def fails(folder: Path, tests: list[str], *options: str) -> str:
    """Run some tests on a copy; return the last words of pytest if one fails."""
    (folder / NAMES).write_text("\n".join(tests))
    return failure(folder, "pytest", "-q", "-p", "no:cacheprovider", *options, f"@{NAMES}")


def coverage_of(folder: Path, sources: list[str], workers: int) -> dict[Place, list[str]]:
    """Run tests once; return for each line the tests that come to it, specific ones first.

    For line 0, these are the tests that come to any line of the file.
    """
    tests = [name.replace("policyd", "tests", 1) for name in sources]
    if len(sources) == len(FOLDERS):
        tests += OTHER_TESTS
    measured = [f"--cov={name}" for name in sources]
    options = ("-q", f"-n{workers}", "-mnot e2e and not bench", "--cov-context=test")
    options = (*options, "--cov-report=", "--cov-fail-under=0", *measured)
    if why := failure(folder, "pytest", *options, *tests, seconds=3600):
        raise SystemExit(f"{why}\nrepair the tests first: they fail without an error in the code")
    return tests_by_line(folder)


def tests_by_line(folder: Path) -> dict[Place, list[str]]:
    """Return what the tests of a copy came to when they ran last, as `coverage_of` does."""
    data = CoverageData(str(folder / ".coverage"))
    data.read()
    lines: dict[Place, list[str]] = defaultdict(list)
    reached: Counter[str] = Counter()
    for path in data.measured_files():
        name = str(Path(path).relative_to(folder))
        for line, contexts in data.contexts_by_lineno(path).items():
            for context in filter(None, contexts):  # none: it ran when the file was imported
                test = context.rpartition("|")[0]  # the name of a test may have a bar, too
                lines[name, line].append(test)
                lines[name, 0].append(test)
                reached[test] += 1
    return {
        place: sorted({*found}, key=lambda t: (reached[t], t))[:MOST_TESTS]
        for place, found in lines.items()
    }


def tried(mutant: Mutant, folder: Path, tests: list[str]) -> Fate:
    """Put a mutant into a copy, and let tests and histories look for it.

    Raises:
        SystemExit: If what objects to the mutant objects without it, too.
    """
    file = folder / mutant.path
    sound = file.read_text()
    file.write_text(mutant.source)
    try:
        if tests and fails(folder, tests, "-x"):
            return Fate(mutant, "tests")
        killer = next((name for name, how in LATER.items() if failure(folder, *how)), "")
    finally:
        file.write_text(sound)
    if killer and (why := failure(folder, *LATER[killer])):
        raise SystemExit(f"{why}\nrepair {killer} first: it fails without an error in the code")
    return Fate(mutant, killer)


def fates(mutants: list[Mutant], base: Path, workers: int) -> Iterator[Fate]:
    """Yield what becomes of mutants, as it turns out.

    Raises:
        SystemExit: If a test that is to notice them is not found without them, or fails.
    """
    first = copied(base / "0")
    folders = sorted({"/".join(mutant.path.split("/")[:2]) for mutant in mutants})
    lines = coverage_of(first, folders, workers)
    # What runs when a file is imported is run by no test: any test of the file tries it.
    of_file = {mutant: lines.get((mutant.path, 0), []) for mutant in mutants}
    tests = {m: lines.get((m.path, m.line)) or of_file[m] for m in mutants}
    needed = sorted({test for each in tests.values() for test in each})
    if needed and (why := fails(first, needed, "--collect-only")):
        raise SystemExit(f"{why}\npytest does not find a test by the name that it gave it")
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        copies.put(first if number == 0 else copied(base / str(number)))

    def attempt(mutant: Mutant) -> Fate:
        folder = copies.get()
        try:
            return tried(mutant, folder, tests[mutant])
        finally:
            copies.put(folder)

    pool = ThreadPoolExecutor(workers)
    try:
        ends = as_completed([pool.submit(attempt, mutant) for mutant in mutants])
        for end in track(ends, "mutants", total=len(mutants), console=Console(stderr=True)):
            yield end.result()
    finally:
        pool.shutdown(cancel_futures=True)


def main() -> int:
    parser = argparse.ArgumentParser(description="Put small errors into the product, one by one.")
    parser.add_argument("count", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="beginning of the paths of files")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    mutants = chosen(ROOT, given.count, given.seed, given.only)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as base:
        found = []
        for fate in fates(mutants, Path(base), given.workers):
            found.append(fate)
            if not fate.killer:
                print(f"survived: {fate.mutant}", flush=True)
    killers = Counter(fate.killer or "survived" for fate in found)
    share = 1 - killers["survived"] / max(len(found), 1)
    counts = ", ".join(f"{name} {count}" for name, count in killers.most_common())
    verdict = "ok" if share >= GOAL else "BELOW"
    seconds = time.monotonic() - begun
    print(f"{len(found)} mutants in {seconds:.0f} s: {counts}")
    print(f"killed {share:.1%}, goal {GOAL:.0%}: {verdict}")
    if given.json:
        survivors = [str(fate.mutant) for fate in found if not fate.killer]
        given.json.write_text(json.dumps({"killed": killers, "survived": survivors}, indent=2))
    return int(share < GOAL)


if __name__ == "__main__":
    sys.exit(main())
