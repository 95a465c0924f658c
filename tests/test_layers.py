"""The direction of imports, and the purity of the core, are tests."""

import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

PROJECT = Path(__file__).parents[1]
LINTER = Path(sys.executable).with_name("lint-imports")


def lint(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LINTER, "--config", str(config), "--no-cache"],
        cwd=config.parent,
        capture_output=True,
        text=True,
        check=False,
    )


def test_every_import_points_inwards():
    result = lint(PROJECT / "pyproject.toml")

    assert result.returncode == 0, result.stdout


def test_no_modules_import_each_other_in_a_circle():
    """An import within a function hides a circle from Python, and not from a reader."""
    graph = grimp.build_graph(
        "policyd", "webhooks", exclude_type_checking_imports=True, cache_dir=None
    )
    imports = {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}

    TopologicalSorter(imports).prepare()


INWARDS = "Dependencies point inwards"
PURE = "The pure folders do no I/O, read no clock and never log"
FORMATS = "Formats of other engines register with the engine, which imports none"
ALLOCATOR = "The allocator knows no Kubernetes"
EMBEDDED = "Only `policyd up` starts the embedded cluster"
COMMANDS = "Commands import of the webhooks what runs them"


@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        pytest.param(
            "policyd/alloc/intruder.py", "import time", PURE, id="the-allocator-reads-no-clock"
        ),
        pytest.param("policyd/cel/intruder.py", "import os", PURE, id="cel-reads-no-environment"),
        pytest.param(
            "policyd/engine/intruder.py", "import policyd.clock", PURE, id="the-engine-takes-now"
        ),
        pytest.param(
            "policyd/alloc/intruder.py",
            "import policyd.api",
            ALLOCATOR,
            id="the-allocator-knows-no-objects",
        ),
        pytest.param(
            "policyd/api/intruder.py",
            "import policyd.engine",
            INWARDS,
            id="the-wire-knows-no-engine",
        ),
        pytest.param(
            "policyd/engine/intruder.py",
            "import policyd.dialects.registry",
            FORMATS,
            id="the-engine-knows-no-other-engine",
        ),
        pytest.param(
            "policyd/cel/lib/intruder.py",
            "import policyd.dialects.kyverno.functions.images",
            FORMATS,
            id="cel-knows-no-other-engine",
        ),
        pytest.param(
            "policyd/dialects/kyverno/intruder.py",
            "import pathlib",
            PURE,
            id="formats-read-no-files",
        ),
        pytest.param(
            "policyd/dialects/intruder.py",
            "import policyd.registration",
            INWARDS,
            id="formats-know-no-webhook-rules",
        ),
        pytest.param(
            "policyd/workload/intruder.py",
            "import policyd.kube.client",
            PURE,
            id="a-workloads-life-asks-no-cluster",
        ),
        pytest.param(
            "policyd/workload/intruder.py",
            "import policyd.controller.settings",
            INWARDS,
            id="a-workloads-life-knows-no-controller",
        ),
        pytest.param(
            "policyd/registration/intruder.py",
            "import webhooks.namespaces",
            INWARDS,
            id="registration-knows-no-webhooks",
        ),
        pytest.param(
            "policyd/registration/intruder.py",
            "import asyncio",
            PURE,
            id="registration-sends-nothing",
        ),
        pytest.param(
            "policyd/alloc/intruder.py",
            "import policyd.optimize",
            INWARDS,
            id="the-allocator-knows-kueue-only",
        ),
        pytest.param(
            "policyd/optimize/intruder.py",
            "import policyd.jobs",
            ALLOCATOR,
            id="what-goes-beyond-is-pure",
        ),
        pytest.param(
            "policyd/forecast/intruder.py", "import random", PURE, id="forecasts-draw-no-lots"
        ),
        pytest.param(
            "policyd/forecast/intruder.py",
            "import policyd.api",
            ALLOCATOR,
            id="forecasts-know-no-objects",
        ),
        pytest.param(
            "policyd/admission/intruder.py", "import asyncio", PURE, id="admission-is-pure"
        ),
        pytest.param(
            "webhooks/intruder.py",
            "import policyd.controller.run",
            INWARDS,
            id="webhooks-run-no-controller",
        ),
        pytest.param(
            "policyd/controller/intruder.py",
            "import webhooks.app",
            INWARDS,
            id="the-controller-runs-no-webhooks",
        ),
        pytest.param(
            "policyd/cli/intruder.py",
            "import policyd.local.kubelet",
            EMBEDDED,
            id="up-alone-has-a-cluster",
        ),
        pytest.param(
            "policyd/cli/intruder.py",
            "import webhooks.app",
            COMMANDS,
            id="commands-run-webhooks-as-a-whole",
        ),
    ],
)
def test_the_contracts_catch(module, line, contract, tmp_path):
    for name in ("policyd", "webhooks"):
        copy_sources(PROJECT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    (tmp_path / module).write_text(f'"""Breaks a rule."""\n\n{line}\n')

    result = lint(tmp_path / "pyproject.toml")

    assert result.returncode == 1
    assert f"{contract} BROKEN" in result.stdout


def copy_sources(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
