"""The direction of imports, and the purity of the core, are tests."""

import subprocess
import sys
from pathlib import Path

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


@pytest.mark.parametrize(
    ("module", "line"),
    [
        pytest.param("policyd/alloc/intruder.py", "import time", id="the-allocator-reads-no-clock"),
        pytest.param("policyd/cel/intruder.py", "import os", id="cel-reads-no-environment"),
        pytest.param(
            "policyd/engine/intruder.py", "import policyd.clock", id="the-engine-takes-now"
        ),
        pytest.param(
            "policyd/alloc/intruder.py", "import policyd.api", id="the-allocator-knows-no-objects"
        ),
        pytest.param(
            "policyd/api/intruder.py", "import policyd.engine", id="the-wire-knows-no-engine"
        ),
        pytest.param("policyd/admission/intruder.py", "import asyncio", id="admission-is-pure"),
        pytest.param("policyd/registration/intruder.py", "import os", id="registration-is-pure"),
        pytest.param(
            "policyd/registration/intruder.py", "import webhooks.app", id="registration-is-below"
        ),
        pytest.param(
            "webhooks/intruder.py", "import policyd.controller.run", id="webhooks-run-no-controller"
        ),
        pytest.param(
            "policyd/controller/intruder.py", "import webhooks.app", id="nor-the-other-way-round"
        ),
        pytest.param(
            "policyd/cli/intruder.py", "import policyd.local.kubelet", id="up-alone-has-a-cluster"
        ),
        pytest.param(
            "policyd/cli/intruder.py", "import webhooks.app", id="commands-run-webhooks-as-a-whole"
        ),
    ],
)
def test_the_contracts_catch(module, line, tmp_path):
    for name in ("policyd", "webhooks"):
        copy_sources(PROJECT / name, tmp_path / name)
    (tmp_path / "pyproject.toml").write_text((PROJECT / "pyproject.toml").read_text())
    (tmp_path / module).write_text(f'"""Breaks a rule."""\n\n{line}\n')

    result = lint(tmp_path / "pyproject.toml")

    assert result.returncode == 1
    assert "BROKEN" in result.stdout


def copy_sources(source: Path, target: Path) -> None:
    for path in source.rglob("*.py"):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
