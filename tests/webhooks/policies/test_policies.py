"""The policies in force: files and objects, good and bad, coming and going."""

import json
from functools import partial

import pytest
from prometheus_client import CollectorRegistry

from policyd.api.admission import parse_review
from policyd.api.meta import ObjectMeta
from policyd.engine.compile.load import load_document
from policyd.errors import ConfigurationError
from policyd.kube.changes import Added, Deleted
from policyd.policy_files import MOST_BYTES
from tests.webhooks.policies import drop, take
from tests.webhooks.policies import stored as stored_as
from tests.webhooks.reviews import policy, review
from webhooks.metrics import WebhookMetrics
from webhooks.namespaces import Namespace, Namespaces, without_cluster
from webhooks.policies import in_force as module
from webhooks.policies.in_force import PoliciesInForce, files_of
from webhooks.policies.stored import PolicyLimits

NEVER = [{"expression": "false"}]
ALWAYS = [{"expression": "true"}]


class Case:
    """Policies that count how often they changed."""

    def __init__(self, *limits):
        self.changes = 0
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.policies = PoliciesInForce(
            namespaces=without_cluster,
            metrics=self.metrics,
            limits=PolicyLimits(*limits),
            changed=self.change,
        )
        self.take, self.drop = partial(take, self.policies), partial(drop, self.policies)

    def change(self):
        self.changes += 1

    @property
    def names(self):
        return [policy.name for policy in self.policies.loaded]

    def figure(self, name):
        return self.metrics.registry.get_sample_value(name)


@pytest.fixture
def case():
    return Case()


def write(path, *policies):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n---\n".join(map(json.dumps, policies)))
    return path


def stored(name, **spec):
    return stored_as(name, policy(name, **spec)["spec"])


def test_folders_are_searched_for_what_looks_like_policies(tmp_path):
    inner = write(tmp_path / "gpu" / "caps" / "policy.yaml")
    (tmp_path / "gpu" / "README.md").write_text("# no policy")
    named = write(tmp_path / "named.txt")

    assert files_of([tmp_path / "gpu", named, inner]) == [inner, named]


def test_a_path_that_is_not_there_is_refused(tmp_path, case):
    with pytest.raises(ConfigurationError, match="not found") as caught:
        case.policies.read_files([tmp_path / "none"])

    assert caught.value.hint == "`--policies` takes files and folders"


def test_a_file_that_is_not_read_is_a_mistake_and_named(tmp_path, case, capsys):
    folder = tmp_path / "policies"
    write(tmp_path / "secret.yaml", policy("secret", validations=NEVER))
    write(folder / "own.yaml", policy("own", validations=NEVER))
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    case.policies.read_files([folder])

    assert case.names == ["own"]
    assert case.figure("policyd_policy_mistakes") == 1
    output = capsys.readouterr()
    assert "link.yaml" in output.out + output.err


def test_a_file_that_is_none_leaves_the_others_in_force(tmp_path, case):
    write(tmp_path / "a.yaml", policy("good", validations=NEVER))
    with (tmp_path / "b.yaml").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    case.policies.read_files([tmp_path])

    assert case.names == ["good"]
    assert case.figure("policyd_policy_mistakes") == 1


def test_policies_of_the_api_servers_kinds_apply_where_a_file_binds_them(tmp_path, case):
    native = "admissionregistration.k8s.io/v1"
    pods = policy("p", validations=NEVER)["spec"]["matchConstraints"]
    spec = {
        "matchConstraints": pods,
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "params.data.allowed == 'yes'"}],
    }
    kind = "ValidatingAdmissionPolicy"
    by_name = {"name": "settings", "namespace": "a", "parameterNotFoundAction": "Deny"}
    binding = {"policyName": "p", "paramRef": by_name, "validationActions": ["Deny"]}
    named = {"apiVersion": native, "metadata": {"name": "p"}}
    write(tmp_path / "policy.yaml", {**named, "kind": kind, "spec": spec})
    case.policies.read_files([tmp_path])
    assert case.names == []

    write(tmp_path / "binding.yaml", {**named, "kind": f"{kind}Binding", "spec": binding})
    settings = {"metadata": {"name": "settings", "namespace": "a"}, "data": {"allowed": "no"}}
    write(tmp_path / "params.yaml", {"apiVersion": "v1", "kind": "ConfigMap", **settings})
    case.policies.read_files([tmp_path])

    assert case.names == ["p"]
    assert not case.policies.validate(parse_review(review())).allowed


def test_decisions_of_former_policies_are_dropped(tmp_path, case):
    request = parse_review(review())
    for expression in ("object.metadata.name != ''", "object.metadata.name == ''"):
        write(tmp_path / "policy.yaml", policy("p", validations=[{"expression": expression}]))
        case.policies.read_files([tmp_path])
        allowed = [case.policies.validate(request).allowed for _ in range(2)]
        assert allowed == [expression.count("!=") == 1] * 2

    recalled = {"phase": "validate"}
    found = case.metrics.registry.get_sample_value("policyd_recalled_decisions_total", recalled)
    assert found == 1


def test_one_bad_policy_leaves_the_others_in_force(tmp_path, case, capsys):
    write(tmp_path / "a.yaml", policy("good", validations=NEVER))
    write(tmp_path / "b.yaml", policy("bad", validations=[{"expression": "1 +"}]))

    case.policies.read_files([tmp_path])

    assert [p.name for p in case.policies.loaded if not p.unusable] == ["good"]
    assert case.figure("policyd_policies") == 1
    assert case.figure("policyd_policy_mistakes") == 1
    output = capsys.readouterr()
    assert "policy_rejected" in output.out + output.err


def test_reading_again_takes_what_is_new_and_drops_what_is_gone(tmp_path, case):
    file = write(tmp_path / "a.yaml", policy("old", validations=NEVER))
    case.policies.read_files([tmp_path])
    file.unlink()
    write(tmp_path / "b.yaml", policy("new", validations=NEVER))

    case.policies.read_files([tmp_path])

    assert case.names == ["new"]
    assert case.changes == 2


def test_a_file_that_an_edit_broke_keeps_its_last_good_policies(tmp_path, case):
    file = write(tmp_path / "a.yaml", policy("kept", validations=NEVER))
    case.policies.read_files([tmp_path])
    write(file, policy("kept", validations=[{"expresion": "true"}]))

    case.policies.read_files([tmp_path])

    assert not case.policies.validate(parse_review(review())).allowed
    assert case.figure("policyd_policy_mistakes") > 0

    write(file, policy("kept", validations=[{"expression": "true"}]))
    case.policies.read_files([tmp_path])

    assert case.policies.validate(parse_review(review())).allowed
    assert case.figure("policyd_policy_mistakes") == 0


def test_objects_of_the_api_server_come_change_and_go(case):
    first, second = (
        stored("a", validations=NEVER),
        stored("a", validations=[{"expression": "true"}]),
    )

    case.take(first)
    assert not case.policies.validate(parse_review(review())).allowed
    case.take(second)
    assert case.policies.validate(parse_review(review())).allowed
    case.drop(second)
    assert case.names == []


def test_an_object_that_an_edit_broke_keeps_its_last_good_spec(case):
    first = stored("a", validations=NEVER)
    case.take(first)

    case.take(stored("a", validations=[{"expression": "1 +"}]))

    assert not case.policies.validate(parse_review(review())).allowed
    assert case.figure("policyd_policy_mistakes") == 1


def test_an_object_does_not_replace_what_the_installation_brings(tmp_path, case, capsys):
    write(tmp_path / "a.yaml", policy("guard", validations=NEVER))
    case.policies.read_files([tmp_path])

    case.take(stored("guard", validations=[{"expression": "true"}]))

    assert not case.policies.validate(parse_review(review())).allowed
    output = capsys.readouterr()
    assert "policy_shadowed" in output.out + output.err


def test_a_review_keeps_the_set_it_began_with(case):
    case.take(stored("a", validations=NEVER))
    began_with = case.policies.in_force

    case.take(stored("b", validations=NEVER))

    assert [compiled.name for compiled in began_with.policies] == ["a"]
    assert case.names == ["a", "b"]


def test_namespaces_come_change_and_go():
    namespaces = Namespaces()
    labelled = Namespace(metadata=ObjectMeta(name="a", labels={"team": "vision"}))

    namespaces.take(Added(labelled))
    assert namespaces.find("a") == {"metadata": {"name": "a", "labels": {"team": "vision"}}}

    namespaces.take(Deleted(labelled))
    assert namespaces.find("a") is None


BROKEN = [{"expression": "nobody()"}]


def allows(case):
    return case.policies.validate(parse_review(review())).allowed


def test_a_file_that_was_never_valid_refuses_the_requests_of_its_policy(tmp_path, case):
    write(tmp_path / "a.yaml", policy("new", validations=BROKEN))

    case.policies.read_files([tmp_path])

    assert not allows(case)
    assert case.figure("policyd_policies") == 0


def test_new_policies_in_a_broken_file_have_placeholders_too(tmp_path, case):
    always = [{"expression": "true"}]
    file = write(tmp_path / "a.yaml", policy("old", validations=always))
    case.policies.read_files([tmp_path])
    assert allows(case)
    write(file, policy("old", validations=BROKEN), policy("added", validations=NEVER))
    case.policies.read_files([tmp_path])
    assert not allows(case)
    write(file, policy("old", validations=always), policy("broken", validations=BROKEN))
    case.policies.read_files([tmp_path])

    assert not allows(case)
    assert sorted(case.names) == ["added", "broken", "old"], "nothing is taken out by mistake"


def test_a_file_that_cannot_be_read_at_all_refuses_nothing_of_its_own(tmp_path, case):
    (tmp_path / "a.yaml").write_text("kind: Policy\n  broken: [")

    case.policies.read_files([tmp_path])

    assert allows(case)
    assert case.figure("policyd_policy_mistakes") == 1


def test_a_broken_object_refuses_until_it_is_fixed_or_deleted(case):
    broken = stored("a", validations=BROKEN)
    again = stored("a", validations=[{"expression": "nobody() || true"}])

    case.take(broken)
    assert not allows(case)
    case.take(again)
    assert not allows(case)
    mended = stored("a", validations=[{"expression": "true"}])
    case.take(mended)
    assert allows(case)
    case.take(broken)
    assert allows(case), "the last good one stays"
    case.drop(broken)
    case.take(broken)
    assert not allows(case)
    case.drop(broken)
    assert allows(case)


def bound_by(**spec):
    return stored_as("b", {"policyName": "a", **spec}, kind="PolicyBinding")


def test_a_broken_binding_refuses_until_it_is_fixed_or_deleted(case):
    always = [{"expression": "true"}]
    case.take(stored("a", validations=always, requiresBinding=True))
    assert allows(case)
    broken = bound_by(paramRef=1)

    case.take(broken)
    assert not allows(case)
    case.take(bound_by())
    assert allows(case)
    case.take(broken)
    assert allows(case), "the last good one stays"
    case.drop(broken)
    assert allows(case)


def kyvernos(**spec):
    constraints = policy("a")["spec"]["matchConstraints"]
    given = {"matchConstraints": constraints, **spec}
    return stored_as("a", given, kind="ValidatingPolicy", group="policies.kyverno.io")


def test_a_broken_policy_of_kyvernos_refuses_until_it_is_fixed_or_deleted(case):
    broken = kyvernos(validations=BROKEN)
    good = kyvernos(validations=[{"expression": "true"}])

    case.take(broken)
    assert not allows(case)
    case.take(good)
    assert allows(case)
    case.take(broken)
    assert allows(case), "the last good one stays"
    case.drop(broken)
    case.take(broken)
    assert not allows(case)


def fail_on(name, monkeypatch):
    """Have loading go wrong where nobody thought it could."""

    def load(document, *given):
        if document.value["metadata"]["name"] == name:
            raise RecursionError("maximum recursion depth exceeded")
        return load_document(document, *given)

    monkeypatch.setattr(module, "load_document", load)


def test_a_policy_that_fails_to_load_refuses_the_requests_that_it_matches(
    tmp_path, case, monkeypatch
):
    write(tmp_path / "p.yaml", policy("bad", validations=ALWAYS), policy("good", validations=NEVER))
    fail_on("bad", monkeypatch)
    case.policies.read_files([tmp_path])

    decision = case.policies.validate(parse_review(review()))

    assert {denial.policy for denial in decision.denials} == {"bad", "good"}
    assert "could not load it" in str(decision.denials)
    assert case.figure("policyd_policy_mistakes") == 1


def test_an_object_that_fails_to_load_refuses_the_requests_that_it_matches(case, monkeypatch):
    fail_on("bad", monkeypatch)
    case.take(stored("bad", validations=ALWAYS))
    assert not case.policies.validate(parse_review(review())).allowed

    monkeypatch.undo()
    case.take(stored("bad", validations=ALWAYS))
    assert case.policies.validate(parse_review(review())).allowed


def kyverno(name, namespace, expression="true"):
    spec = {
        "matchConstraints": policy("a")["spec"]["matchConstraints"],
        "validations": [{"expression": expression}],
    }
    kind, group = "NamespacedValidatingPolicy", "policies.kyverno.io"
    return stored_as(name, spec, kind=kind, group=group, namespace=namespace)


def test_policies_beyond_what_is_kept_refuse_what_they_were_to_guard(capsys):
    case = Case(2)
    for number in range(3):
        case.take(stored(f"p-{number}", validations=ALWAYS))

    decision = case.policies.validate(parse_review(review()))
    assert [denial.policy for denial in decision.denials] == ["p-2"]
    assert "more policies than are kept (2 objects or 16 MiB)" in str(decision.denials)
    assert "policy_rejected" in "".join(capsys.readouterr())
    assert case.figure("policyd_policy_mistakes") == 1

    case.drop(stored("p-0", validations=ALWAYS))
    case.take(stored("p-2", validations=ALWAYS))
    assert case.policies.validate(parse_review(review())).allowed


def test_the_policies_of_one_namespace_leave_those_of_others_their_room():
    case = Case(2)
    for number in range(5):
        case.take(kyverno(f"p-{number}", "team-b"))
    case.take(kyverno("mine", "team-a", expression="false"))
    case.take(stored("ours", validations=NEVER))

    denials = case.policies.validate(parse_review(review())).denials

    assert sorted(denial.policy for denial in denials) == ["mine", "ours"]
    assert not any("than are kept" in denial.message for denial in denials)
