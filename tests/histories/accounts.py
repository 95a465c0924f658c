"""What the chart lets the controller's account do: its roles, and the policies on its writes.

helm is not everywhere; so what it makes of the chart is a file, which `python -m
tests.histories.accounts` writes anew, and which a test of the chart compares.
"""

import subprocess
import sys
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import yaml

from policyd.local.apiserver.requests import parse_target
from tests.controlplane.programs import find_binaries

HOME = "policyd-system"
"""The namespace of policyd's own objects."""
OWN = f"system:serviceaccount:{HOME}:policyd-controller"
FILE = Path(__file__).with_name("accounts.yaml")
CHART = Path(__file__).parents[2] / "charts" / "policyd"

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
ROLES = ("ClusterRole", "Role")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def rendered():
    """Return the text of the file, as helm makes it of the chart."""
    command = [find_binaries() / "helm", "template", "policyd", CHART, f"--namespace={HOME}"]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = [_kept(each) for each in yaml.load_all(made, yaml.CSafeLoader) if each]
    found = [each for each in found if "-controller" in each["metadata"]["name"]
             or each["metadata"]["name"] == "policyd-neither"]  # fmt: skip
    kept = [each for each in found if each["kind"] in {*POLICIES, *ROLES, "Lease"}]
    return yaml.safe_dump_all(kept, sort_keys=False, width=120)


def _kept(obj):
    names = {"name", "namespace"} & obj["metadata"].keys()
    return obj | {"metadata": {name: obj["metadata"][name] for name in sorted(names)}}


@cache
def chart_objects():
    """Return what the file has."""
    return tuple(yaml.load_all(FILE.read_text(), yaml.CSafeLoader))


def of_kind(*kinds):
    """Return the objects of some kinds."""
    return [each for each in chart_objects() if each["kind"] in kinds]


@cache
def right(verb, group, resource, namespace, name):
    """Tell whether the roles of the account let it do this."""
    return any(
        _holds(rule, verb, group, resource, name)
        for role in of_kind(*ROLES)
        if role["kind"] == "ClusterRole" or namespace == role["metadata"].get("namespace", HOME)
        for rule in role["rules"]
    )


def _holds(rule, verb, group, resource, name):
    named = rule.get("resourceNames")
    return (
        any(fnmatchcase(verb, each) for each in rule["verbs"])
        and any(fnmatchcase(group, each) for each in rule.get("apiGroups", ()))
        and any(fnmatchcase(resource, each) for each in rule.get("resources", ()))
        and (not named or name in named)
    )


def missing_right(call):
    """Return the right that a call needs and the account lacks, in words; empty if it has it."""
    target = parse_target(call.path)
    if target is None:
        return ""  # discovery, which everybody may read
    verb = VERBS.get(call.method) or ("watch" if "watch" in call.query else "list")
    verb = "get" if verb == "list" and target.name else verb
    resource = f"{target.plural}/{target.subresource}" if target.subresource else target.plural
    if right(verb, target.group, resource, target.namespace, target.name):
        return ""
    return f"{verb} {resource}.{target.group} {target.namespace}/{target.name}"


if __name__ == "__main__":
    sys.exit(FILE.write_text(rendered()) == 0)
