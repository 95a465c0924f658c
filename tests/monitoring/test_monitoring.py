"""Dashboards and alerts, without a Prometheus: what they ask for exists, and has its page."""

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft7Validator

from tests.charts.release import CHART
from tests.docs.pages import blocks
from tests.monitoring.dashboards import FOLDER, SHORTHANDS, documents, plain, queries
from tests.monitoring.expressions import exposed, unknown
from tests.monitoring.prometheus import RULES, RULES_TEST

DOCS = Path(__file__).parents[2] / "docs"
QUERIES = list(queries())
RULES_OF = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
BY_NAME = {rule["alert"]: rule for rule in RULES_OF}


def test_the_dashboards_in_the_chart_are_those_of_the_table():
    written = {file.name: file.read_text() for file in FOLDER.glob("*.json")}

    assert written == documents(), "run `python -m tests.monitoring.dashboards`"


@pytest.mark.parametrize("query", QUERIES, ids=lambda q: f"{q.dashboard}-{q.panel}")
def test_queries_ask_for_metrics_and_labels_that_exist(query):
    assert unknown(plain(query.expression, interval="1m")) == []
    assert not re.search(r"\b(CQ|LQ|RATE)\b", query.expression)


@pytest.mark.parametrize("name", BY_NAME)
def test_rules_ask_for_metrics_and_labels_that_exist(name):
    assert unknown(BY_NAME[name]["expr"]) == []


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        pytest.param("sum(policyd_nothing)", ["policyd_nothing"], id="metric"),
        pytest.param('policyd_leading{queue="a"}', ["queue"], id="label"),
        pytest.param("sum by (queue) (policyd_leading)", ["queue"], id="grouping"),
        pytest.param(
            "rate(policyd_review_duration_seconds[1m])",
            ["policyd_review_duration_seconds"],
            id="histogram-without-its-end",
        ),
        pytest.param('policyd_leading{job="queue by (x)"}', [], id="text"),
    ],
)
def test_names_that_do_not_exist_are_found(expression, wrong):
    assert unknown(expression) == wrong


@pytest.mark.parametrize("name", BY_NAME)
def test_an_alert_has_a_page_that_names_it_and_a_severity(name):
    rule = BY_NAME[name]
    page = DOCS.parent / rule["annotations"]["runbook"]

    assert f"`{name}`" in page.read_text()
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert {"summary", "description"} <= rule["annotations"].keys()


def test_every_page_belongs_to_an_alert():
    pages = {f"docs/runbooks/{page.name}" for page in (DOCS / "runbooks").glob("*.md")}

    assert pages - {"docs/runbooks/index.md"} == {
        rule["annotations"]["runbook"] for rule in RULES_OF
    }


@pytest.mark.parametrize("name", BY_NAME)
def test_a_rule_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(name):
    fires, silent = set(), set()
    for case in yaml.safe_load(RULES_TEST.read_text())["tests"]:
        for check in case["alert_rule_test"]:
            (fires if check["exp_alerts"] else silent).add(check["alertname"])
            if len(case["input_series"]) > 1:  # neighbours that do not fire are compared as well
                silent.add(check["alertname"])

    assert name in fires
    assert name in silent


def test_panels_of_a_dashboard_have_names_and_places_of_their_own():
    for text in documents().values():
        panels = json.loads(text)["panels"]
        assert len({panel["title"] for panel in panels}) == len(panels)
        assert len({(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}) == len(panels)


def test_a_query_chooses_by_the_variables_of_its_dashboard():
    for name, text in documents().items():
        known = {each["name"] for each in json.loads(text)["templating"]["list"]}
        chosen = set(
            re.findall(
                r"\$(\w+)", "".join(q.expression for q in QUERIES if f"{q.dashboard}.json" == name)
            )
        )
        assert chosen - {"__rate_interval"} <= known
    assert SHORTHANDS["RATE"] == "$__rate_interval"


def test_buckets_counts_and_sums_of_histograms_are_exposed():
    assert "le" not in exposed()["kueue_admission_wait_time_seconds_bucket"]
    assert "kueue_admission_wait_time_seconds" not in exposed()
    assert exposed()["policyd_leading"] == frozenset()


def test_the_guides_values_are_values_of_the_chart():
    schema = json.loads((CHART / "values.schema.json").read_text())
    examples = [
        block
        for block in blocks(DOCS / "guides" / "monitor.md")
        if block.language == "yaml" and block.remark != "prometheus.yml"
    ]

    assert len(examples) == 3
    for block in examples:
        assert list(Draft7Validator(schema).iter_errors(yaml.safe_load(block.text))) == []
