"""`make matrix`: every kind of job with every feature, on both clusters, as a table.

A cell that is fine started, finished and returned its quota, and no write for it was refused.
"""

import argparse
import json
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from tests.full_schemas import WHY_NOT, kueue_schemas
from tests.matrix.cell import Result
from tests.matrix.kinds import KINDS
from tests.matrix.pairs import EVERY
from tests.matrix.running import SERVERS, chosen, run_all
from tests.scenarios import clusters

FINE, NOT_APPLICABLE = "ok", "."
WIDTH = max(map(len, KINDS)) + 1


def main() -> int:
    """Run the cells and print a table for each cluster; return 1 if one of them is not fine."""
    options = _options()
    names = chosen(options.only)
    if not names:
        print(
            f"no cell has all of `{options.only}` in its name: "
            f"{', '.join(KINDS)}; {', '.join(EVERY)}",
            file=sys.stderr,
        )
        return 2
    if options.schemas == "kueue" and not kueue_schemas():
        print(WHY_NOT, file=sys.stderr)
        return 2
    results: list[Result] = []
    for server in servers(options):
        progress = _Progress(server, len(names))
        results += run_all(
            server,
            names,
            gates=options.gates,
            schemas=options.schemas,
            report=progress.report,
        )
        print(table(server, results))
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(each) for each in results], indent=2))
    broken = [each for each in results if not each.fine]
    print(_summary(results, broken))
    return 1 if broken else 0


def servers(options: argparse.Namespace) -> Sequence[str]:
    """Return the clusters to run on: the real one alone where other schemas are asked for."""
    if options.server:
        return [options.server]
    return SERVERS if options.schemas == "slim" else SERVERS[1:]


def table(server: str, results: Sequence[Result]) -> str:
    """Return the table of one cluster: kinds downwards, features across."""
    found = {(each.kind, each.feature): each for each in results if each.server == server}
    features = [name for name in EVERY if any(name == feature for _, feature in found)]
    lines = [f"{server:<{WIDTH}}" + " ".join(features)]
    for kind in dict.fromkeys(kind for (kind, _), each in found.items() if each.applies):
        cells = ((name, found.get((kind, name))) for name in features)
        lines.append(
            f"{kind:<{WIDTH}}" + " ".join(f"{_mark(cell):<{len(name)}}" for name, cell in cells)
        )
    return "\n".join(lines)


def _mark(cell: Result | None) -> str:
    if cell is None or not cell.applies:
        return NOT_APPLICABLE
    if cell.fine:
        return FINE
    stages = (("start", cell.started), ("end", cell.finished), ("quota", cell.returned))
    return next((f"no {name}" for name, done in stages if not done), "refused")


def _summary(results: Sequence[Result], broken: Sequence[Result]) -> str:
    applying = [each for each in results if each.applies]
    refused = sum(len(each.refused) for each in results)
    lines = [
        f"{each.server} {each.kind} {each.feature}: {each.why or 'a write was refused'}"
        + "".join(f"\n    refused: {line}" for line in each.refused[:3])
        for each in broken
    ]
    return "\n".join(
        [
            *lines,
            f"{len(applying)} cells: {len(applying) - len(broken)} fine, {len(broken)} not;"
            f" {refused} writes refused; {len(results) - len(applying)} do not apply",
        ]
    )


class _Progress:
    """Says on standard error which cells are done."""

    def __init__(self, server: str, total: int) -> None:
        self._server, self._total, self._done = server, total, 0
        self._lock = threading.Lock()

    def report(self, result: Result) -> None:
        with self._lock:
            self._done += 1
            if result.applies:
                verdict = FINE if result.fine else f"NOT fine: {result.why or result.refused[0]}"
                print(
                    f"[{self._done}/{self._total}] {self._server} {result.kind}"
                    f" {result.feature} {result.seconds} s: {verdict}",
                    file=sys.stderr,
                    flush=True,
                )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make matrix")
    parser.add_argument("--only", default="", help="cells with all these words in their names")
    parser.add_argument("--server", choices=SERVERS, help="one of the two clusters")
    parser.add_argument("--gates", default="", help="feature gates: A=true,B=false")
    parser.add_argument(
        "--schemas",
        choices=get_args(clusters.Schemas),
        default=clusters.SCHEMAS,
        help="which definitions Kueue's kinds have on the real cluster: ours, or Kueue's own",
    )
    parser.add_argument("--json", help="write the results to this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
