"""Policies of a namespace: those of others cost its reviews nothing."""

import msgspec
import yaml

from policyd.cel.cost import RequestBudget
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model import facts
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, request

RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}


def labelling(namespace, name):
    label = f"Object{{metadata: Object.metadata{{labels: {{'{name}': 'x'}}}}}}"
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "NamespacedMutatingPolicy" if namespace else "MutatingPolicy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
            ],
        },
    }


def of_namespaces():
    documents = [
        labelling("", "b"),
        *(labelling(namespace, name) for namespace in ("ml", "other") for name in ("a", "c")),
    ]
    loaded = load_policies(yaml.safe_dump_all(documents), "p.yaml", EVERY_FORMAT)
    return PolicySet(loaded.policies, namespaces=namespace_lookup((), {}))


def new_pod(namespace):
    return msgspec.structs.replace(request(pod()), namespace=namespace)


def test_policies_of_the_namespace_and_of_the_cluster_change_an_object_in_their_order():
    policies = of_namespaces()

    assert policies.mutate(new_pod("ml")).changed == ("a", "b", "c")
    assert policies.mutate(new_pod("third")).changed == ("b",)
    assert policies.concerned(new_pod("third"), "mutate") == policies.mutating


def test_policies_of_other_namespaces_take_no_part_of_the_budget(monkeypatch):
    shared = []

    def budget(policies, late):
        shared.append(policies)
        return RequestBudget(policies, late)

    monkeypatch.setattr(facts, "RequestBudget", budget)
    policies = of_namespaces()

    policies.mutate(new_pod("ml"))
    policies.mutate(new_pod("third"))

    assert shared == [3, 1]
