"""Runs the cells of the matrix, several at a time, each on its own queue and nodes."""

import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import yaml

from policyd.api.configuration.frameworks import KINDS as FRAMEWORKS
from tests.matrix.cell import Cell, Result
from tests.matrix.features import CONFIGURATION, topologies
from tests.matrix.kinds import KINDS
from tests.matrix.pairs import EVERY
from tests.scenarios import clusters, foreign
from tests.scenarios.api import Refused

SERVERS = ("embedded", "real")
AT_ONCE = 6
ALPHA = {"SparkApplicationIntegration": True}
"""Gates without which a kind does not queue."""

Names = tuple[str, str]
"""A kind and a feature."""


def chosen(only: str = "") -> list[Names]:
    """Return the cells whose names have all words of `only`."""
    every = [(kind, feature) for feature in EVERY for kind in KINDS]
    words = only.lower().split()
    named = ((each, " ".join(each).lower().split()) for each in every)
    return [each for each, names in named if all(word in names for word in words)]


@contextmanager
def opened(
    server: str, folder: Path, gates: str = "", schemas: clusters.Schemas = clusters.SCHEMAS
) -> Iterator[clusters.Cluster]:
    """Start one of the clusters, with the kinds of others installed.

    Args:
        server: Which of the two.
        folder: Where the processes log.
        gates: Feature gates, as `A=true,B=false`.
        schemas: Which definitions Kueue's kinds have on the real one.
    """
    config = folder / "configuration.yaml"
    frameworks = sorted(FRAMEWORKS)
    switched = dict(each.split("=") for each in gates.split(",") if each)
    more = {name: on == "true" for name, on in switched.items()}
    content = {
        **CONFIGURATION,
        "integrations": {"frameworks": frameworks},
        "featureGates": ALPHA | more,
    }
    config.write_text(yaml.safe_dump(content))
    options = ("--config", str(config))
    start = (
        clusters.embedded(folder, *options)
        if server == "embedded"
        else clusters.real(folder, both=options, schemas=schemas)
    )
    with start as cluster:
        foreign.install(cluster.api)
        cluster.api.create(topologies())
        yield cluster


def run(cluster: clusters.Cluster, kind: str, name: str) -> Result:
    """Run one cell, if it applies."""
    feature = EVERY[name]
    result = Result(kind=kind, feature=name, server=cluster.name)
    result.applies = kind in feature.kinds
    if not result.applies:
        result.why = feature.why_not
        return result
    cell, began = Cell(cluster, result), time.monotonic()
    try:
        feature.story(cell)
    except (AssertionError, Refused) as error:
        result.why = str(error) or type(error).__name__
    except Exception as error:  # noqa: BLE001 - a cell that breaks is one of the results
        result.why = f"{type(error).__name__}: {error}"
    result.refused = cell.refusals()
    result.seconds = round(time.monotonic() - began, 1)
    try:
        cell.clear()
    except Exception as error:  # noqa: BLE001 - likewise: the others still have their turn
        result.why = result.why or f"not cleared: {type(error).__name__}: {error}"
    return result


def run_all(
    server: str,
    names: Iterable[Names],
    *,
    gates: str = "",
    schemas: clusters.Schemas = clusters.SCHEMAS,
    report: Callable[[Result], None],
) -> list[Result]:
    """Run cells on one of the clusters, and tell of each when it is done."""

    def run_reported(cluster: clusters.Cluster, each: Names) -> Result:
        result = run(cluster, *each)
        report(result)
        return result

    with (
        tempfile.TemporaryDirectory(prefix="policyd-matrix-") as folder,
        opened(server, Path(folder), gates, schemas) as cluster,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        return [*pool.map(lambda each: run_reported(cluster, each), names)]
