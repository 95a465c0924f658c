"""`make conformance-live`: cases of VAP and MAP on a real API server, against the engine.

Every policy of the cases is installed with its bindings on one API server, and narrowed to
namespaces of its own; every request is sent to both. They must agree on allowing it, on the
message, and on the object.
"""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conformance.outcome import SuiteResult
from tests.live.conformance import define_kinds, run_file
from tests.live.offline import compare
from tests.live.server import live

_ROOT = Path(__file__).parents[2]

GOAL = 0.995
"""The share of objects of which the commands say what the API server does."""

FILES = (
    "k8s-map",
    "kyverno-cli-map",
    "kyverno-cli-vap",
    "gatekeeper-library-cel",
    "kubescape-vap",
    "kyverno-cli-cpol-cel",
    "kyverno-cli-mpol",
    "kyverno-cli-vpol",
    "kyverno-policies-mpol",
    "kyverno-policies-vpol",
    "kyverno-policies-cpol-cel",
)
"""The files with policies of the API server's kinds, or with the same policies in them."""


def main() -> int:
    """Run the cases, print a table, and return how it went."""
    options = _options()
    cases = Path(os.environ.get("POLICYD_CASES") or _ROOT.parent / "shared" / "cases")
    if not cases.is_dir():
        print(f"no cases in {cases}: set POLICYD_CASES to their folder", file=sys.stderr)
        return 2
    given = {
        name: json.loads((cases / "policy" / f"{name}.json").read_text())
        for name in FILES
        if options.only in name
    }
    if options.offline is not None:
        return _offline([case for file in given.values() for case in file], options)
    results = []
    seen = Counter[str]()
    with live() as running:
        define_kinds(running, [case for file in given.values() for case in file])
        for name, file in given.items():
            started = time.monotonic()
            results.append(SuiteResult.of(name, run_file(running, file, seen)))
            print(_row(results[-1], time.monotonic() - started), flush=True)
    print("what policies did:", ", ".join(f"{deed} {n}" for deed, n in seen.most_common()))
    _explain(results)
    if options.json:
        Path(options.json).write_text(
            json.dumps([result.as_json() for result in results], indent=2)
        )
    return 1 if any(result.failures for result in results) else 0


def _offline(cases: list[Any], options: argparse.Namespace) -> int:
    """Compare what the commands say with what the API server does, and print how many differ."""
    with live() as running:
        define_kinds(running, cases)
        found = compare(running, cases, options.offline, options.seed)
    for text in found.different:
        print(f"differs: {text[:600]}")
    print("what policies did:", ", ".join(f"{deed} {n}" for deed, n in found.deeds.most_common()))
    print(f"refused by the API server for other reasons: {found.refused_otherwise}")
    print(
        f"{found.compared} objects compared, {found.undecodable} of them undecodable:"
        f" {len(found.different)} differ, {found.share:.2%} equal"
    )
    return 0 if found.share >= GOAL else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make conformance-live")
    parser.add_argument("--only", default="", help="files with this in their name")
    parser.add_argument("--json", default="", help="where to write the results")
    parser.add_argument(
        "--offline", type=int, help="compare policyd apply instead, on so many random edits"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the random edits")
    return parser.parse_args()


def _row(result: SuiteResult, seconds: float) -> str:
    out = sum(result.out_of_scope.values())
    return (
        f"{result.suite:<28} {result.passed:>5} passed {len(result.failures):>4} failed "
        f"{out:>5} out of scope {seconds:>6.0f} s"
    )


def _explain(results: list[SuiteResult]) -> None:
    """Print the rules by which cases are out of scope, and what failed."""
    rules: dict[str, int] = {}
    for result in results:
        for rule, count in result.out_of_scope.items():
            rules[rule] = rules.get(rule, 0) + count
    for rule, count in sorted(rules.items(), key=lambda item: -item[1]):
        print(f"out of scope: {count:>5}  {rule}")
    for result in results:
        for failure in result.failures:
            print(f"failed: {failure['case']}: {failure['why'][:600]}")


if __name__ == "__main__":
    sys.exit(main())
