"""`make attacks`: try to get round the policies and to stall them; print a table of figures."""

import argparse
import importlib
import json
import logging
import pkgutil
import sys
import time
from dataclasses import asdict

import structlog

import tests.attacks
from tests.attacks.figures import Attack, Figures

MEBIBYTE = 1024 * 1024


def main() -> int:
    """Run the attacks one after the other; return 1 if one of them does harm."""
    options = _options()
    chosen = {name: run for name, run in attacks().items() if options.only.lower() in name.lower()}
    if not chosen:
        print(
            f"no attack has `{options.only}` in its name: {', '.join(attacks())}", file=sys.stderr
        )
        return 2
    # What the attacked say of it would stand between the lines of the table.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    _print_heading()
    results = {name: _tried(name, run) for name, run in chosen.items()}
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:  # noqa: PTH123
            json.dump({name: asdict(figures) for name, figures in results.items()}, file, indent=2)
    harmful = [name for name, figures in results.items() if not figures.harmless]
    tried = sum(figures.tried for figures in results.values())
    bypasses = sum(figures.bypasses for figures in results.values())
    reads = sum(figures.reads for figures in results.values())
    print(f"{tried} inputs, {bypasses} bypasses, {reads} reads of what is not one's own")
    print("no harm was done" if not harmful else f"harm was done by: {', '.join(harmful)}")
    return 1 if harmful else 0


def attacks() -> dict[str, Attack]:
    """Return all attacks of this folder, by name, each named after its module."""
    found: dict[str, Attack] = {}
    for module in pkgutil.iter_modules(tests.attacks.__path__):
        if module.name.startswith(("_", "test_")):
            continue
        area = importlib.import_module(f"tests.attacks.{module.name}")
        found |= {
            f"{module.name}: {name}": run for name, run in getattr(area, "ATTACKS", {}).items()
        }
    return found


def _tried(name: str, run: Attack) -> Figures:
    began = time.monotonic()
    try:
        figures = run()
    except Exception as error:  # noqa: BLE001 - the attacks after it are run, too
        figures = Figures(tried=0, faults=(f"it broke: {type(error).__name__}: {error}",))
    print(
        f"{name:<56}{figures.tried:>9}{figures.bypasses:>10}{figures.reads:>7}"
        f"{_milliseconds(figures.worst_seconds)}{_milliseconds(figures.median_seconds)}"
        f"{_mebibytes(figures.peak_bytes)}{time.monotonic() - began:>7.0f}"
        f"{'' if figures.harmless else '  HARM'}",
        flush=True,
    )
    for fault in figures.faults[:20]:
        print(f"  {fault}", flush=True)
    return figures


def _print_heading() -> None:
    print(
        f"{'attack':<56}{'tried':>9}{'bypasses':>10}{'reads':>7}{'worst ms':>10}{'median ms':>10}"
        f"{'peak MiB':>10}{'s':>7}",
        flush=True,
    )


def _milliseconds(seconds: float | None) -> str:
    return f"{'':>10}" if seconds is None else f"{seconds * 1000:>10.1f}"


def _mebibytes(size: int | None) -> str:
    return f"{'':>10}" if size is None else f"{size / MEBIBYTE:>10.1f}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make attacks")
    parser.add_argument("--only", default="", help="attacks with this in their name")
    parser.add_argument("--json", default="", help="file to write the figures to")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
