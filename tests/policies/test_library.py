"""The library: every policy has its cases, every case passes, and together they get along."""

import re
import time
from pathlib import Path

import msgspec
import pytest
import yaml

from policyd.api.admission import UserInfo
from policyd.api.makers import USUAL, makers_of
from policyd.cli.bootstrap import default_policies
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.model.dialects import Volatile
from policyd.engine.model.params import StoredParams
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import KINDS
from policyd.engine.offline.cases import CaseUser, load_cases, run_case, uncovered
from policyd.engine.offline.requests import RequestCircumstances, namespace_lookup, request_for
from policyd.jobs.kinds.registry import KINDS as JOB_KINDS
from policyd.jobs.kinds.volcano_job import VOLCANO_JOB
from policyd.patch.json_patch import apply_json_patch
from tests.attacks.growth import past_a_limit
from tests.attacks.library import IGNORED, excuses_owners, padded, vehicles

LIBRARY = Path(__file__).parents[2] / "policies"
FOLDERS = sorted(path.parent for path in LIBRARY.rglob("policy.yaml"))
DEFAULT = {policy["metadata"]["name"] for policy in default_policies(LIBRARY)}
ALL = {folder.name for folder in FOLDERS}
JOBS = {(kind.group, kind.plural) for kind in KINDS if kind.places} & {
    *((kind.group, kind.plural) for kind in JOB_KINDS if kind.kind != "RayService"),
    (VOLCANO_JOB.group, VOLCANO_JOB.plural),
}
"""Kinds that queue and have templates of pods. A RayService serves, like a Deployment."""
OF_SCHEDULERS = {"coscheduling-gang", "kai-gang", "volcano-gang"}
"""Policies that set fields for a scheduler, which does not know all kinds."""
TEAM = {"policyd.io/team": "team-a", "policyd.io/queue": "team-a", "policyd.io/topology": "rack"}


def load(folder):
    path = folder / "policy.yaml"
    return load_policies(path.read_bytes(), path.relative_to(LIBRARY).as_posix())


def cases_of(folder):
    path = folder / "cases.yaml"
    cases, findings = load_cases(path.read_bytes(), path.relative_to(LIBRARY).as_posix())
    assert not findings, findings
    return cases


def _is_left_to_its_maker(case):
    owned = (case.object or {}).get("metadata", {}).get("ownerReferences")
    return bool(case.user and owned and case.expect.skipped)


def every_case():
    for folder in FOLDERS:
        cases = cases_of(folder)
        for case in cases.cases:
            name = f"{folder.name}: {case.name}".replace(" ", "-")
            yield pytest.param(folder, cases, case, id=name)


@pytest.mark.parametrize(("folder", "cases", "case"), list(every_case()))
def test_case(folder, cases, case):
    outcome = run_case(case, cases, load(folder))

    assert outcome.problems == (), "\n".join(outcome.difference)


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in FOLDERS])
def test_no_case_passes_because_an_expression_fails(folder):
    text = (folder / "policy.yaml").read_text()
    strict = text.replace("failurePolicy: Ignore", "failurePolicy: Fail")
    cases = cases_of(folder)

    outcomes = [run_case(case, cases, load_policies(strict, folder.name)) for case in cases.cases]

    assert [outcome.problems for outcome in outcomes if not outcome.passed] == []


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in FOLDERS])
class TestFolder:
    def test_has_one_policy_of_its_name_with_a_description(self, folder):
        loaded = load(folder)

        assert loaded.findings == ()
        assert [policy.name for policy in loaded.policies] == [folder.name]
        assert loaded.policies[0].policy.spec.description

    def test_has_cases_that_it_acts_on_and_cases_that_it_leaves_alone(self, folder):
        expectations = [case.expect for case in cases_of(folder).cases]

        assert any(e.denied or e.mutated or e.result for e in expectations)
        assert any(e.skipped or e.unchanged or e.allowed for e in expectations)

    def test_has_a_case_that_violates_each_validation(self, folder):
        loaded, cases = load(folder), cases_of(folder)
        outcomes = [run_case(case, cases, loaded) for case in cases.cases]

        assert uncovered(loaded, outcomes) == []

    def test_has_a_readme_that_says_when_what_and_how(self, folder):
        text = (folder / "README.md").read_text()

        assert re.search(
            r"\*\*When to use it\*\*.*\*\*What it does\*\*.*\*\*How to adapt", text, re.DOTALL
        )


OF_KYVERNO = sorted(path.parent for path in LIBRARY.rglob("kyverno.yaml"))


@pytest.mark.parametrize("folder", [pytest.param(f, id=f.name) for f in OF_KYVERNO])
class TestFolderOfKyverno:
    def load(self, folder):
        dialect = dialect_of(volatile=Volatile(now=time.time_ns))
        return load_policies((folder / "kyverno.yaml").read_bytes(), folder.name, dialect)

    def test_has_a_policy_that_is_a_dry_run_until_it_is_rolled_out(self, folder):
        (value,) = yaml.safe_load_all((folder / "kyverno.yaml").read_text())
        loaded = self.load(folder)

        assert loaded.findings == ()
        assert [each.policy.name for each in loaded.background] == [folder.name]
        assert value["metadata"]["annotations"]["policyd.io/rollout"] == "0"
        assert value["metadata"]["annotations"]["policies.kyverno.io/description"].endswith(".")

    def test_has_cases_that_it_acts_on_and_cases_that_it_leaves_alone(self, folder):
        cases = cases_of(folder)
        outcomes = [run_case(case, cases, self.load(folder)) for case in cases.cases]
        acted = {bool(case.expect.generated or case.expect.deleted) for case in cases.cases}

        assert [outcome.problems for outcome in outcomes if not outcome.passed] == []
        assert acted == {True, False}

    test_has_a_readme_that_says_when_what_and_how = (
        TestFolder.test_has_a_readme_that_says_when_what_and_how
    )


def library(labels, names, makers=USUAL):
    policies = [policy for folder in FOLDERS for policy in load(folder).policies]
    chosen = [policy for policy in policies if policy.name in names]
    params = StoredParams(param for folder in FOLDERS for param in cases_of(folder).params)
    surroundings = PolicyContext(
        namespaces=namespace_lookup((), labels), params=params, makers=makers
    )
    return PolicySet(chosen, surroundings=surroundings)


def apply(obj, labels, names=DEFAULT, *, by="alice", makers=USUAL):
    policy_set, circumstances = (
        library(labels, names, makers),
        RequestCircumstances(user=UserInfo(username=by)),
    )
    decision = policy_set.review(request_for(obj, circumstances))
    result = apply_json_patch(obj, decision.operations)
    assert policy_set.mutate(request_for(result, circumstances)).operations == ()
    return decision, result


DRIVER = "system:serviceaccount:team-a:spark-driver"

TRAINING = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: team-a}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: train, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


def test_together_they_make_a_job_ready_for_the_queue():
    decision, result = apply(yaml.safe_load(TRAINING), TEAM)

    assert decision.denials == ()
    assert result["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "team-a",
        "kueue.x-k8s.io/priority-class": "production",
    }
    template = result["spec"]["template"]
    assert template["metadata"]["annotations"] == {
        "kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-rack"
    }
    assert template["spec"]["priorityClassName"] == "production"
    assert template["spec"]["tolerations"][0]["key"] == "nvidia.com/gpu"
    assert template["spec"]["containers"][0]["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "1Gi",
    }


def test_all_of_them_together_change_an_object_no_further_the_second_time():
    labels = {**TEAM, "policyd.io/owner": "alice", "policyd.io/cost-centre": "4711"}
    job = yaml.safe_load(TRAINING.replace("image: train", "image: registry.example/train:1"))
    model = {"policyd.io/gpu-model": "h100", "policyd.io/spot": "true"}
    saving = {"policyd.io/checkpoint-every": "15m"}
    job["spec"]["template"]["metadata"] = {"labels": model, "annotations": saving}

    decision, result = apply(job, labels, ALL)

    assert [str(denial) for denial in decision.denials] == []
    assert result["spec"]["podFailurePolicy"]
    assert result["spec"]["ttlSecondsAfterFinished"]
    [term] = result["spec"]["template"]["spec"]["affinity"]["nodeAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]["nodeSelectorTerms"][:1]
    assert {e["key"] for e in term["matchExpressions"]} == {
        "karpenter.sh/capacity-type",
        "nvidia.com/gpu.product",
    }


def test_together_they_say_everything_that_is_wrong_at_once():
    job = yaml.safe_load(TRAINING.replace("nvidia.com/gpu: 8", "nvidia.com/gpu: 16"))

    decision, _ = apply(job, {})

    assert [denial.policy for denial in decision.denials] == [
        "cap-gpus-per-pod",
        "forbid-gpu-without-queue",
    ]
    assert all(denial.remedy for denial in decision.denials)


def test_the_pods_of_a_job_pass_as_they_are():
    _, job = apply(yaml.safe_load(TRAINING), TEAM)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "train-x",
            "namespace": "team-a",
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
            ],
        },
        "spec": job["spec"]["template"]["spec"],
    }

    decision, _ = apply(pod, TEAM, by="system:serviceaccount:kube-system:job-controller")

    assert decision.allowed
    assert decision.operations == ()


def test_a_pod_that_only_says_that_it_is_of_a_job_queues_by_itself():
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "train-x"}, "spec": spec}
    pod["metadata"]["ownerReferences"] = [owner]

    queued, result = apply(pod, TEAM)
    elsewhere, _ = apply(pod, {}, {"forbid-gpu-without-queue"})

    assert result["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert queued.allowed
    assert [denial.policy for denial in elsewhere.denials] == ["forbid-gpu-without-queue"]


@pytest.mark.parametrize(
    ("makers", "refusing"),
    [
        pytest.param((), ["forbid-gpu-without-queue", "multi-gpu-needs-queue"], id="by-default"),
        pytest.param((f"core={DRIVER}",), [], id="an-account-that-is-trusted"),
        pytest.param(
            (f"core={DRIVER}-2",),
            ["forbid-gpu-without-queue", "multi-gpu-needs-queue"],
            id="another-account",
        ),
    ],
)
def test_executors_of_spark_belong_to_their_driver_if_its_account_is_trusted(makers, refusing):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "etl-driver", "controller": True}
    spec = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "etl-exec-1"}, "spec": spec}
    pod["metadata"]["ownerReferences"] = [owner]
    names = {"forbid-gpu-without-queue", "multi-gpu-needs-queue"}

    decision, _ = apply(pod, {}, names, by=DRIVER, makers=makers_of(makers))
    _, named = apply(pod, TEAM, {"queue-name-from-namespace"}, by=DRIVER, makers=makers_of(makers))

    assert [denial.policy for denial in decision.denials] == refusing
    assert ("labels" in named["metadata"]) is bool(refusing)


@pytest.mark.parametrize(
    ("folder", "cases", "case"),
    [param for param in every_case() if _is_left_to_its_maker(param.values[2])],
)
def test_maker_fields_are_evaluated_if_a_user_names_one(folder, cases, case):
    sent = msgspec.structs.replace(case, user=CaseUser(username="alice"))

    assert run_case(case, cases, load(folder)).problems == ()
    assert run_case(sent, cases, load(folder)).problems != ()


def test_nothing_makes_pods_that_a_policy_would_have_refused_or_changed():
    figures = vehicles(only=excuses_owners)

    assert figures.tried > 400
    assert figures.faults == ()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda each: each.name)
def test_what_is_set_for_jobs_is_set_for_all_kinds_that_queue(folder):
    """The queue reads templates: what is set for pods alone is not in the quota of their job."""
    spec = yaml.safe_load((folder / "policy.yaml").read_text())["spec"]
    matched = {
        (group, resource)
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules", ())
        if "CREATE" in rule["operations"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    if "inject" in spec and ("batch", "jobs") in matched and folder.name not in OF_SCHEDULERS:
        assert JOBS - matched == set()


def test_policies_that_deny_fail_closed_unless_there_is_a_reason():
    specs = {f.name: yaml.safe_load((f / "policy.yaml").read_text())["spec"] for f in FOLDERS}
    ignored = {
        name
        for name, spec in specs.items()
        if spec.get("validations") and spec.get("failurePolicy") == "Ignore"
    }

    assert ignored == IGNORED.keys()


def test_nothing_is_padded_past_a_policy_that_limits_gpus():
    figures = padded()

    assert figures.tried > 150
    assert figures.faults == ()


def test_nothing_is_scaled_past_the_limit_of_a_workload():
    figures = past_a_limit()

    assert figures.tried > 60
    assert figures.faults == ()
