"""Run suites, print a line for each, and write the result as JSON if asked to.

Exit code 0 if all cases that are run pass, 1 if some fail, 2 if there is nothing to run.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from tests.conformance.suites import find_suites

_ROOT = Path(__file__).parents[2]


def main(arguments=None):
    options = _parser().parse_args(arguments)
    cases = Path(os.environ.get("POLICYD_CASES") or _ROOT.parent / "shared" / "cases")
    if not cases.is_dir():
        print(f"no cases in {cases}: set POLICYD_CASES to their folder", file=sys.stderr)
        return 2
    results = []
    for suite in find_suites(cases, options.suite):
        result = suite.run()
        _print(result, failures=options.failures)
        results.append(result)
    if not results:
        print(f"no suite in {cases} is called `{options.suite}`", file=sys.stderr)
        return 2
    _print_totals(results)
    if options.json:
        suites = [result.as_json() for result in results]
        Path(options.json).write_text(json.dumps({"suites": suites}, indent=1) + "\n")
    return 1 if any(result.failures for result in results) else 0


def _parser():
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--suite", default="", help="a group of suites, or the stem of a file")
    parser.add_argument("--json", default="", metavar="FILE", help="write the result to FILE")
    parser.add_argument("--failures", type=int, default=10, help="failures to show per suite")
    return parser


def _print(result, *, failures):
    if result.no_adapter:
        print(f"{result.suite:64} {result.cases:6} cases     no adapter yet")
        return
    skipped = result.cases - result.in_scope
    counts = f"{result.passed:6} passed {len(result.failures):5} failed {skipped:5} out of scope"
    print(f"{result.suite:64} {result.cases:6} cases {counts}")
    for rule, count in result.out_of_scope.items():
        print(f"    out of scope: {rule} ({count})")
    for failure in result.failures[:failures]:
        print(f"    {failure['case']}: {failure['why'][:300]}")


def _print_totals(results):
    run = [result for result in results if not result.no_adapter]
    in_scope = sum(result.in_scope for result in run)
    passed = sum(result.passed for result in run)
    share = 100 * passed / in_scope if in_scope else 0
    print(f"{passed} of {in_scope} cases in scope pass ({share:.1f} %)")
    waiting = [result for result in results if result.no_adapter]
    if waiting:
        cases = sum(result.cases for result in waiting)
        print(f"{cases} cases of {len(waiting)} suites have no adapter yet: they count as neither")


if __name__ == "__main__":
    sys.exit(main())
