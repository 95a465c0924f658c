"""The steps of an admission handler: policies first, then jobs and queues."""

import pytest
from msgspec import structs

from policyd.admission.decisions import changed, combined, object_of
from policyd.admission.handler import AdmissionHandler
from policyd.admission.jobs import JobAdmission
from policyd.admission.queues import QueueAdmission
from policyd.api.admission import UserInfo, parse_review
from policyd.engine.model.decision import ALLOWED, Decision, Denial, Failure
from policyd.patch.operations import Operation
from tests.webhooks.reviews import POD, queued, review


def answer_with(decision):
    return lambda _request, _more: decision


@pytest.mark.parametrize(
    ("groups", "asked"),
    [
        pytest.param([], True, id="in-no-group"),
        pytest.param(["system:authenticated"], True, id="in-others"),
        pytest.param(["system:authenticated", "system:nodes"], False, id="in-one-of-them"),
    ],
)
def test_requests_of_exempt_groups_are_not_decided_on(groups, asked):
    refused = Decision(denials=(Denial(policy="p", message="no"),))
    request = structs.replace(parse_review(review()), user_info=UserInfo(groups=tuple(groups)))

    handler = AdmissionHandler(
        phase="validate", policies=answer_with(refused), exempt=frozenset({"system:nodes"})
    )
    decision = handler.validate(request)

    assert decision is (refused if asked else ALLOWED)


def test_a_change_sees_the_result_of_the_ones_before_it():
    def first(_request, draft):
        draft.set(("metadata", "labels", "a"), "1")

    def second(_request, draft):
        draft.set(("metadata", "labels", "b"), draft.get(("metadata", "labels", "a")) + "2")

    request = parse_review(review())
    policies = Decision(operations=(Operation("add", "/spec/x", value=1),))

    decision = changed(request, changed(request, policies, first), second)

    assert [(operation.path, operation.value) for operation in decision.operations] == [
        ("/spec/x", 1),
        ("/metadata/labels/a", "1"),
        ("/metadata/labels/b", "12"),
    ]


@pytest.mark.parametrize(
    ("policies", "obj"),
    [
        pytest.param(ALLOWED, POD, id="no-queue-is-named"),
        pytest.param(
            Decision(denials=(Denial(policy="p", message="no"),)), queued(POD), id="refused-already"
        ),
    ],
)
def test_jobs_are_left_alone_where_nothing_is_to_be_done(policies, obj):
    jobs, queues = JobAdmission(), QueueAdmission()
    handler = AdmissionHandler(
        phase="mutate", policies=answer_with(policies), jobs=jobs, queues=queues
    )

    assert handler.mutate(parse_review(review(obj))) is policies


def test_decoded_objects_of_policies_are_not_decoded_again():
    asked = parse_review(review(queued(POD)))
    decided = Decision(object=queued(POD, queue="theirs"))
    seen = []

    changed(asked, decided, lambda _request, draft: seen.append(draft.object))

    assert seen == [decided.object]
    assert object_of(asked, decided) is decided.object


def test_several_verdicts_are_one_decision():
    change = Operation("add", "/spec/x", value=1)
    first = Decision(
        warnings=("a",), audit_annotations={"x": "1"}, matched=("p",), operations=(change,)
    )
    failure = Failure(policy="q", message="broken", ignored=True)
    second = Decision(
        denials=(Denial(policy="q", message="no"),),
        audit_annotations={"y": "2"},
        failures=(failure,),
    )

    decision = combined(first, ALLOWED, second)

    assert not decision.allowed
    assert decision.warnings == ("a",)
    assert decision.audit_annotations == {"x": "1", "y": "2"}
    assert (decision.matched, decision.failures) == (("p",), (failure,))
    assert decision.operations == (change,)
