"""Kueue's tables of its Configuration, and of objects that are turned into another version."""

from policyd.api.kueue.v1beta1 import downgraded, upgraded
from tests.conformance.kueue_objects import run_table


def run_objects(path):
    """Convert Kueue's objects."""
    yield from run_table(path, lambda case: _conversion(path.stem, case, upgraded, downgraded))


def _conversion(table, case, up, down):
    """Convert up, down, or there and back, as the table's name says."""
    if "RoundTrip" in table:
        ways = (down, up) if table.endswith("Reverse") else (up, down)
        (document,) = case.input.values()
        return difference(ways[1](ways[0](document)), document)
    way = up if table.endswith("ConvertTo") else down
    return difference(way(case.input["input"]), case.want["expected"])


def difference(got, wanted):
    """Say where JSON differs; what Go calls zero may be written or not."""
    got, wanted = _trimmed(got), _trimmed(wanted)
    return "" if got == wanted else f"got {got}, wanted {wanted}"


def _trimmed(value):
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    if not isinstance(value, dict):
        return value
    trimmed = {name: _trimmed(each) for name, each in value.items()}
    trimmed = {name: each for name, each in trimmed.items() if each not in (None, "", [], {})}
    counts = {"pendingWorkloads", "reservingWorkloads", "admittedWorkloads"}
    return {} if trimmed.keys() <= counts and not any(trimmed.values()) else trimmed
