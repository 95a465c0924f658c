"""Hooks of a commit, and weekly renewals: each configuration is valid, and names what is there."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

PROJECT = Path(__file__).parents[1]
FILE = PROJECT / ".pre-commit-config.yaml"
COMMANDS = Path(sys.executable).parent
HOOKS = [hook for repo in yaml.safe_load(FILE.read_text())["repos"] for hook in repo["hooks"]]


def run(*command):
    return subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)


def test_the_configuration_is_valid():
    done = run(COMMANDS / "pre-commit", "validate-config", FILE)

    assert done.returncode == 0, done.stdout + done.stderr


def test_hooks_cover_what_a_commit_must_keep():
    programs = {Path(shlex.split(hook["entry"])[0]).name for hook in HOOKS}

    assert programs == {"ruff", "mypy", "lint-imports", "policyd"}


@pytest.mark.parametrize("hook", [pytest.param(hook, id=hook["id"]) for hook in HOOKS])
def test_a_hook_runs_a_command_of_the_project(hook):
    program, *arguments = shlex.split(hook["entry"])
    options = [argument for argument in arguments if argument.startswith("-")]
    words = [argument for argument in arguments if (PROJECT / argument).exists() is False]

    assert program.startswith(".venv/bin/")
    done = run(COMMANDS / Path(program).name, *(w for w in words if w not in options), "--help")
    assert done.returncode == 0, done.stderr
    assert [option for option in options if option not in done.stdout] == []


def test_weekly_updates_cover_existing_folders():
    updates = yaml.safe_load((PROJECT / ".github/dependabot.yml").read_text())["updates"]
    renewed = {(each["package-ecosystem"], each["directory"].strip("/")) for each in updates}
    modules = {str(path.parent.relative_to(PROJECT)) for path in PROJECT.glob("tests/**/go.mod")}
    recipes = {
        str(path.parent.relative_to(PROJECT)) for path in PROJECT.glob("charts/**/Dockerfile")
    }

    expected = {("gomod", module) for module in modules} | {("docker", each) for each in recipes}
    assert renewed == expected | {("pip", "")}
