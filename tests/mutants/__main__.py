"""Put N small errors into the product, one at a time, and see which of them no test notices.

    python -m tests.mutants 300 [--seed 1] [--only policyd/alloc] [--json FILE]

First, all tests of the folders run once, so that it is known which of them come to which line.
Then each error is tried by these tests, the most specific ones first; what they let pass, by the
suites from outside, where they are at hand, and by simulated histories.
"""

import argparse
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from coverage.numbits import numbits_to_nums
from rich.progress import track

from tests.mutants.sites import FOLDERS, Mutant, chosen

ROOT = Path(__file__).parents[2]
TESTS = ("alloc", "workload", "jobs", "controller", "optimize", "simulate", "devices", "multikueue")
MOST_TESTS = 400
"""Tests that try one mutant."""
TEST_SECONDS = 300.0
"""How long they may take: a mutant that hangs is noticed."""
LATER = {
    "outside": ("tests.conformance", "--suite", "kueue-core"),
    "histories": ("tests.histories", "-n", "40"),
}
"""What tries a mutant that the tests let pass."""
GOAL = 0.9


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant: who noticed it, empty if it survived."""

    mutant: Mutant
    killer: str


def copied(folder: Path) -> Path:
    """Copy the project into a folder, without what is built."""
    unwanted = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")
    return Path(shutil.copytree(ROOT, folder, ignore=unwanted, symlinks=True))


def run(folder: Path, *command: str, seconds: float) -> int:
    """Run a module of Python on a copy; 1 if it does not end in time."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            (sys.executable, "-m", *command),
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1
    return done.returncode


def coverage_of(folder: Path) -> dict[tuple[str, int], list[str]]:
    """Run the tests once; return for each line the tests that come to it, specific ones first."""
    tests = [f"tests/{name}" for name in TESTS]
    sources = [f"--cov={name}" for name in FOLDERS]
    code = run(
        folder,
        "pytest",
        *("-q", "-n", "2", "-m", "not e2e and not bench", "--cov-context=test", "--cov-report="),
        *sources,
        *tests,
        seconds=3600,
    )
    if code:
        raise SystemExit("the tests do not pass without an error in the code: repair them first")
    with sqlite3.connect(folder / ".coverage") as data:
        rows = data.execute(
            "select path, context, numbits from line_bits join file on file.id = file_id"
            " join context on context.id = context_id"
        )
        lines: dict[tuple[str, int], list[str]] = defaultdict(list)
        reached: Counter[str] = Counter()
        for path, context, bits in rows:
            test, bar, _ = context.partition("|")
            name = str(Path(path).relative_to(folder))
            for line in numbits_to_nums(bits) if bar else ():
                lines[name, line].append(test)
                reached[test] += 1
    return {
        place: sorted({*found}, key=lambda t: (reached[t], t)) for place, found in lines.items()
    }


def tried(mutant: Mutant, folder: Path, tests: list[str]) -> Fate:
    """Put a mutant into a copy, and let tests and histories look for it."""
    file = folder / mutant.path
    sound = file.read_text()
    file.write_text(mutant.source)
    try:
        if tests and run(
            folder,
            *("pytest", "-x", "-q", "-p", "no:cacheprovider", *tests[:MOST_TESTS]),
            seconds=TEST_SECONDS,
        ):
            return Fate(mutant, "tests")
        for name, command in LATER.items():
            if run(folder, *command, seconds=TEST_SECONDS):
                return Fate(mutant, name)
    finally:
        file.write_text(sound)
    return Fate(mutant, "")


def fates(mutants: list[Mutant], base: Path, workers: int) -> Iterator[Fate]:
    """Yield what becomes of mutants, in no order."""
    first = copied(base / "0")
    tests = coverage_of(first)
    copies: SimpleQueue[Path] = SimpleQueue()
    for number in range(workers):
        copies.put(first if number == 0 else copied(base / str(number)))

    def attempt(mutant: Mutant) -> Fate:
        folder = copies.get()
        try:
            return tried(mutant, folder, tests.get((mutant.path, mutant.line), []))
        finally:
            copies.put(folder)

    with ThreadPoolExecutor(workers) as pool:
        yield from track(pool.map(attempt, mutants), "mutants", total=len(mutants))


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
        found = list(fates(mutants, Path(base), given.workers))
    killers = Counter(fate.killer or "survived" for fate in found)
    for fate in found:
        if not fate.killer:
            print(f"survived: {fate.mutant}")
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
