"""The chart's values and their schema, without helm."""

import json
import re
import tomllib

import pytest
import yaml
from jsonschema import Draft7Validator

from policyd import __version__
from tests.charts.release import CHART

VALUES = (CHART / "values.yaml").read_text()
SCHEMA = json.loads((CHART / "values.schema.json").read_text())


def leaves(values, path=""):
    """Yield the path of each value; what is free to have any keys is one value."""
    for key, value in values.items():
        if isinstance(value, dict) and value and key not in {"requests", "limits"}:
            yield from leaves(value, f"{path}/{key}")
        else:
            yield f"{path}/{key}"


def known(schema, path=""):
    """Yield the path of each value that the schema has."""
    if "$ref" in schema:
        schema = SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]]
    if "properties" not in schema:
        yield path
        return
    for key, value in schema["properties"].items():
        yield from known(value, f"{path}/{key}")


def test_the_schema_is_one_and_takes_the_defaults():
    Draft7Validator.check_schema(SCHEMA)

    assert list(Draft7Validator(SCHEMA).iter_errors(yaml.safe_load(VALUES))) == []


def test_every_value_has_a_default_and_a_place_in_the_schema():
    components = ("webhooks", "controller", "dashboard", "background", "idleNotebooks")
    without_default = {"/global", *(f"/{name}/resources/claims" for name in components)}

    assert set(leaves(yaml.safe_load(VALUES))) == set(known(SCHEMA)) - without_default


@pytest.mark.parametrize("section", ["policies", "webhooks", "controller", "dashboard", "metrics"])
def test_values_of_a_section_are_explained(section):
    text = re.search(rf"^{section}:\n((?:[ ].*\n|\n)+)", VALUES, re.MULTILINE)[1]

    assert text.count("# --") >= 2


def test_the_versions_are_the_projects():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((CHART.parents[1] / "pyproject.toml").read_text())["project"]

    assert chart["version"] == chart["appVersion"] == project["version"] == __version__


def test_the_library_in_the_chart_is_the_library():
    assert (CHART / "policies").is_symlink()
    assert (CHART / "policies").resolve() == CHART.parents[1] / "policies"


def test_the_image_copies_what_is_there():
    lines = (CHART / "image" / "Dockerfile").read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--" not in line]

    missing = [name for names in copied for name in names if not (CHART.parents[1] / name).exists()]

    assert copied
    assert missing == []
