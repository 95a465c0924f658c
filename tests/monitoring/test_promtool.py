"""The alert rules, tested by promtool, where it is at hand: `make monitoring` gets it."""

import subprocess

import pytest

from tests.docs.pages import PROJECT, blocks
from tests.monitoring.prometheus import check_rules, lint, where

FOLDER = where()
DOCS = PROJECT / "docs"
pytestmark = pytest.mark.skipif(
    not (FOLDER / "promtool").exists(), reason="promtool is not at hand: run `make monitoring`"
)


def test_the_rules_fire_as_their_cases_say(tmp_path):
    check_rules(tmp_path, FOLDER)


def test_a_rule_that_never_fires_fails_its_case(tmp_path, monkeypatch):
    from tests.monitoring import prometheus  # noqa: PLC0415

    broken = tmp_path / "rules.yaml"
    broken.write_text(
        prometheus.RULES.read_text().replace("(policyd_leading) == 0", "(policyd_leading) == 7")
    )
    monkeypatch.setattr(prometheus, "RULES", broken)

    with pytest.raises(AssertionError, match="PolicydLeaderMissing"):
        check_rules(tmp_path, FOLDER)


def test_promtool_finds_a_name_that_breaks_conventions():
    named = "policyd_things_count"
    text = f"# HELP {named} Things.\n# TYPE {named} gauge\n{named} 1\n"

    assert lint(text, FOLDER)
    assert lint(text.replace("_count", ""), FOLDER) == []


def test_prometheus_takes_the_guides_configuration(tmp_path):
    (given,) = [
        block
        for block in blocks(DOCS / "guides" / "monitor.md")
        if block.remark == "prometheus.yml"
    ]
    file = tmp_path / "prometheus.yml"
    file.write_text(given.text)

    done = subprocess.run([FOLDER / "promtool", "check", "config", file], check=False)

    assert done.returncode == 0
