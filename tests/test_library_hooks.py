"""What is relied on of libraries beyond their documentation, as they are installed.

Each such library has an upper bound in `pyproject.toml`, so that a new release is taken knowingly:
raise the bound, and run this and `tests/webhooks/test_uvicorn.py`, which has uvicorn's part.
"""

import ast
import inspect
import json
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import prometheus_client
import pytest
import yaml
from kubernetes.config.exec_provider import ConfigException, ExecProvider
from kubernetes.config.kube_config import ConfigNode
from packaging.requirements import Requirement
from prometheus_client.metrics import MetricWrapperBase

PROJECT = Path(__file__).parents[1]
TABLE = tomllib.loads((PROJECT / "pyproject.toml").read_text())
DEPENDENCIES = {each.name: each for each in map(Requirement, TABLE["project"]["dependencies"])}

UNDOCUMENTED = {
    "uvicorn.protocols": "uvicorn",
    "yaml.composer": "pyyaml",
    "prometheus_client.metrics": "prometheus-client",
    "kubernetes.config.exec_provider": "kubernetes",
    "kubernetes.config.kube_config": "kubernetes",
}
"""Modules that are taken from, and that their libraries' documentation does not name."""

HOOKED = {*UNDOCUMENTED.values(), "httptools"}


def used():
    """Return the dotted names of what the product imports, or reaches by attributes."""
    for top in ("policyd", "webhooks"):
        for path in (PROJECT / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)
                elif isinstance(node, ast.Import):
                    yield from (alias.name for alias in node.names)
                elif isinstance(node, ast.Attribute):
                    yield ast.unparse(node)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "import_module":
                    yield ast.unparse(node.args[0]).strip("'")


def test_each_of_these_is_still_used():
    names = set(used())

    for module in UNDOCUMENTED:
        assert any(f"{name}.".startswith(f"{module}.") for name in names), module


def test_no_module_of_a_library_is_used_that_calls_itself_private():
    tops = {"aiohttp", "click", "msgspec", "rich", "starlette", "structlog", "uvicorn", "yaml"}
    private = [
        name
        for name in used()
        if name.partition(".")[0] in tops
        and re.fullmatch(r"[\w.]+", name)
        and any(part.startswith("_") and not part.startswith("__") for part in name.split("."))
    ]

    assert private == []


@pytest.mark.parametrize("name", sorted(HOOKED))
def test_a_library_that_is_hooked_into_has_an_upper_bound(name):
    bound = DEPENDENCIES[name].specifier

    assert any(each.operator in ("<", "<=") for each in bound)
    assert bound.contains(version(name))


class Counting(yaml.composer.Composer, yaml.CSafeLoader):
    """Composes by the Composer in Python, from the events of the parser in C."""

    def __init__(self, text):
        yaml.CSafeLoader.__init__(self, text)
        yaml.composer.Composer.__init__(self)
        self.seen = []

    def compose_node(self, parent, index):
        self.seen.append(type(self.peek_event()).__name__)
        return super().compose_node(parent, index)


def test_the_composer_of_yaml_asks_for_each_node_by_this_method():
    loader = Counting("a: [b, &c d, *c]\n")
    node = loader.get_single_node()

    assert isinstance(node, yaml.MappingNode)
    assert loader.seen == [
        "MappingStartEvent",
        "ScalarEvent",
        "SequenceStartEvent",
        "ScalarEvent",
        "ScalarEvent",
        "AliasEvent",
    ]
    assert list(inspect.signature(yaml.composer.Composer.compose_node).parameters) == [
        "self",
        "parent",
        "index",
    ]


def test_metrics_have_one_base_with_labels_and_removal():
    for kind in (prometheus_client.Counter, prometheus_client.Gauge, prometheus_client.Histogram):
        assert issubclass(kind, MetricWrapperBase)
    assert callable(MetricWrapperBase.labels)
    assert callable(MetricWrapperBase.remove)


def test_credential_plugins_are_run_from_a_node_of_the_kubeconfig(tmp_path):
    version_ = "client.authentication.k8s.io/v1"
    answer = {"apiVersion": version_, "kind": "ExecCredential", "status": {"token": "t"}}
    plugin = {"apiVersion": version_, "command": "echo", "args": [json.dumps(answer)]}

    provider = ExecProvider(ConfigNode("exec", plugin), str(tmp_path), ConfigNode("cluster", {}))

    assert provider.run() == {"token": "t"}
    assert issubclass(ConfigException, Exception)
