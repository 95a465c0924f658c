"""The reference says what the code says."""

import pytest

from policyd.engine.documents.findings import RULES
from tests import generate_docs, generate_errors


@pytest.mark.parametrize("name", ["policy.md", "cli.md", "settings.md", "metrics.md", "errors.md"])
def test_the_page_is_made_from_the_code_as_it_is(name):
    there = (generate_docs.FOLDER / name).read_text()

    assert there == generate_docs.documents()[name], "run `python -m tests.generate_docs`"


def test_every_setting_says_what_it_means():
    for row in generate_docs.settings_rows():
        assert row[-1], row


def test_every_field_of_a_policys_own_making_says_what_it_means():
    page = generate_docs.policy_page()

    for struct in ("PolicySpec", "MatchConstraints", "Inject", "Validation", "InjectedGang"):
        section = page.split(f"## {struct}\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows
        assert not [row for row in rows if row.endswith("|  |")]


def test_every_rule_of_findings_is_explained():
    page = generate_docs.documents()["errors.md"]

    for rule, about in RULES.items():
        assert f"| `{rule}` | {about} |" in page


@pytest.mark.parametrize(
    ("area", "message", "hint"),
    [
        pytest.param(
            "policyd/engine", "`…` is not a quantity", "such as 500m or 4Gi", id="yielded"
        ),
        pytest.param("policyd/cli", "no case has `…` in its name", "", id="wrong-use"),
        pytest.param("policyd/engine", "unknown field `…`", "", id="finding"),
        pytest.param(
            "webhooks",
            "no certificate to serve with",
            "give `--certificate` and `--key`, or `--secret namespace/name` to have one made",
            id="error-with-a-hint",
        ),
    ],
)
def test_a_message_is_logged_with_its_hint(area, message, hint):
    documented = generate_errors.messages()[area]

    assert any(listed == message and (not hint or tried == hint) for listed, tried in documented)
