"""The reference says what the code says."""

import pytest

from tests import generate_docs


@pytest.mark.parametrize("name", ["policy.md", "cli.md", "settings.md", "metrics.md"])
def test_the_page_is_made_from_the_code_as_it_is(name):
    there = (generate_docs.FOLDER / name).read_text()

    assert there == generate_docs.documents()[name], "run `python -m tests.generate_docs`"


def test_every_setting_says_what_it_means():
    for row in generate_docs.settings_rows():
        assert row[-1], row


def test_every_field_of_a_policys_own_making_says_what_it_means():
    page = generate_docs.policy_page()

    for struct in ("PolicySpec", "MatchConstraints", "Inject", "Validation", "Gang"):
        section = page.split(f"## {struct}\n")[1].split("\n## ")[0]
        rows = [line for line in section.splitlines() if line.startswith("| `")]
        assert rows
        assert not [row for row in rows if row.endswith("|  |")]
