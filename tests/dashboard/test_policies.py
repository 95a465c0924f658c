"""Policies on the page: their state, roll-outs and shadows, and what reports say of them."""

import re

import msgspec
import pytest

from policyd.api.policy import BindingObject, PolicyObject
from policyd.dashboard.pages.policies import ONE, VIEW
from policyd.dashboard.views.policies import (
    PAGE,
    ReadPolicies,
    ResultCounts,
    policies_view,
    policy_view,
)
from policyd.dashboard.views.review_counts import OTHER, ReviewCounts, Reviewed
from policyd.engine.offline.report import results_in
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from tests.dashboard.looking import Looking

NOW = 1_800_000_000.0


def policy(name, reason="Compiled", message="", **spec):
    ready = {"type": "Ready", "status": "True", "reason": reason, "message": message}
    given = {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [ready]}}
    return msgspec.convert(given, PolicyObject)


def results(*rows):
    found = [
        {
            "source": "policyd", "policy": name, "rule": "v", "result": result,
            "message": "not so", "resources": [{"kind": "Pod", "name": "a"}],
            "properties": {"count": str(count), **properties},
        }
        for name, result, count, properties in rows
    ]  # fmt: skip
    return tuple(results_in({"results": found}))


def test_counts_are_of_all_namespaces_that_are_shown():
    of_a = results(("p", "pass", 5, {}), ("p", "fail", 2, {"enforcement": "Deny"}))
    of_b = results(
        ("p", "fail", 3, {"enforcement": "Warn", "admitted": "7"}),
        ("p", "fail", 1, {"enforcement": "Audit"}),
        ("p", "error", 4, {}),
        ("p", "skip", 6, {}),
    )
    read = ReadPolicies(policies=(policy("p"),), results={"a": of_a, "b": of_b})

    view = policies_view(read, {}, NOW)

    counts = ResultCounts(fine=5, refused=2, warned=3, noted=1, failed=4, lifted=6, admitted=7)
    assert view.rows[0].counts == counts
    assert counts.matched == 21
    assert [each.name for each in view.namespaces] == ["a", "b"]


def test_a_broken_policy_is_shown_with_places_and_hints():
    lines = "spec.validations[0].expression: unknown field (did you mean `x`)\nsecond"
    read = ReadPolicies(policies=(policy("p", "Invalid", lines), policy("q")))

    (row,) = policies_view(read, {}, NOW).broken

    assert (row.name, row.state) == ("p", "broken")
    assert row.findings == tuple(lines.split("\n"))


def test_a_shadow_stands_beside_what_it_may_replace():
    read = ReadPolicies(
        policies=(policy("p", description="old"), policy("s", "Shadow", shadowOf="p")),
        results={"a": results(("s", "fail", 4, {"shadowOf": "p"}))},
    )

    (pair,) = policies_view(read, {}, NOW).pairs
    assert (pair.of.name, pair.shadow.name, pair.differences) == ("p", "s", 4)
    assert policies_view(read, {}, NOW).rows[1].counts is None
    assert policy_view(read._replace(name="p"), {}, NOW).pair == pair


def test_the_steps_of_a_roll_out_are_sentences():
    steps = [
        {"enforcement": "Warn", "percent": 20, "namespaceSelector": {"matchLabels": {}}},
        {"enforcement": "Skip", "namespaces": list("abcdefg")},
    ]
    read = ReadPolicies(policies=(policy("p", rollout=steps),))

    (row,) = policies_view(read, {}, NOW).staged

    assert row.rollout == (
        "Warn in all namespaces that a selector picks, 20 of 100 workloads",
        "Skip in a, b, c, d, e and 2 more",
    )


@pytest.mark.parametrize(
    "spec",
    [None, "x", [], {"rollout": 3, "validations": "x", "inject": [], "description": {"a": 1}}],
)
def test_a_spec_of_any_shape_is_shown(spec):
    read = ReadPolicies(policies=(PolicyObject(metadata=policy("p").metadata, spec=spec),))

    (row,) = policies_view(read, {}, NOW).rows

    assert (row.state, row.does, row.rollout) == ("not looked at yet", "", ())


def test_a_policy_that_only_reports_know_is_from_a_file():
    read = ReadPolicies(results={"a": results(("p", "pass", 1, {}))})

    assert policies_view(read, {}, NOW).rows[0].state == "from a file"
    assert policies_view(read._replace(missing="no"), {}, NOW).rows[0].state == ""


@pytest.mark.parametrize(
    ("page", "shown"), [("", 0), ("2", PAGE), ("99", PAGE), ("²", 0), ("-1", 0)]
)
def test_many_policies_have_pages(page, shown):
    read = ReadPolicies(policies=tuple(policy(f"p{n:04}") for n in range(PAGE + 5)))

    view = policies_view(read, {"page": page, "word": "P0"}, NOW)

    assert view.rows[0].name == f"p{shown:04}"
    assert (view.found, view.pages) == (PAGE + 5, 2)


def test_one_policy_has_its_results_and_bindings():
    binding = {"metadata": {"name": "b"}, "spec": {"policyName": "p"}}
    read = ReadPolicies(
        policies=(policy("p", validations=[{"expression": "true", "message": "m"}]),),
        bindings=(msgspec.convert(binding, BindingObject),),
        results={"a": results(("p", "pass", 9, {}), ("p", "fail", 2, {"enforcement": "Deny"}))},
        name="p",
    )

    view = policy_view(read, {}, NOW)

    assert view.validations == (("", "m", "true"),)
    assert view.bindings == (("b", "not looked at yet"),)
    assert [(each.result, each.count) for each in view.results] == [("fail (Deny)", 2), ("pass", 9)]


@pytest.fixture
def looking():
    looking = Looking(views=(VIEW, ONE))
    looking.api.store.put(r.POLICIES, {"metadata": {"name": "p"}, "spec": {"description": "why"}})
    looking.enter()
    return looking


def test_a_cluster_without_reports_says_so(looking):
    answer = looking.get("/policies")

    assert answer.status_code == 200
    assert "no kind of report" in answer.text
    assert "why" in answer.text


def test_a_policy_that_is_not_there_is_named(looking):
    assert looking.get("/policies/p").status_code == 200
    answer = looking.get("/policies/nobody")

    assert answer.status_code == 404
    assert "there is no policy nobody" in answer.text


def test_a_user_without_the_right_to_list_policies_gets_a_message(looking):
    page = looking.api.page

    async def refusing(resource, *, into, **options):
        if resource == r.POLICIES:
            raise ForbiddenError("policies are forbidden")
        return await page(resource, into=into, **options)

    looking.api.page = refusing
    answer = looking.get("/policies")

    assert answer.status_code == 200
    assert "policies are forbidden" in answer.text


SOME = Reviewed({"p": ReviewCounts(9, 1, 2, 3, 4), "of-a-file": ReviewCounts(5)}, webhooks=2)


def test_reviews_are_counted_by_policy_also_for_those_of_files():
    shadow = policy("s", "Shadow", shadowOf="p")
    read = ReadPolicies(policies=(policy("p"), policy("idle"), shadow), reviewed=SOME)

    rows = {each.name: each for each in policies_view(read, {}, NOW).rows}

    assert rows["p"].reviews == ReviewCounts(9, 1, 2, 3, 4)
    assert rows["idle"].reviews == ReviewCounts()
    assert rows["s"].reviews is None
    assert (rows["of-a-file"].state, rows["of-a-file"].reviews) == ("from a file", ReviewCounts(5))
    assert policy_view(read._replace(name="p"), {}, NOW).row.reviews == rows["p"].reviews


@pytest.mark.parametrize(
    "reviewed",
    [
        pytest.param(None, id="not-asked"),
        pytest.param(Reviewed(missing=("no answer",)), id="no-answer"),
        pytest.param(Reviewed({OTHER: ReviewCounts(1)}, webhooks=1), id="counted-together"),
    ],
)
def test_a_count_that_is_not_known_is_no_zero(reviewed):
    read = ReadPolicies(policies=(policy("p"),), reviewed=reviewed)

    view = policies_view(read, {}, NOW)

    assert [(each.name, each.reviews) for each in view.rows] == [("p", None)]


async def some():
    return SOME._replace(missing=("the webhook at 10.0.0.9:9444 cannot be reached",))


def test_those_who_see_the_whole_cluster_see_the_counts_of_reviews():
    looking = Looking(reviews=some)
    looking.api.store.put(r.POLICIES, {"metadata": {"name": "p"}, "spec": {}})
    looking.sign_in("ann", "", "team-a")

    whole = looking.get("/policies").text
    one = looking.get("/policies/p").text
    of_namespace = looking.get("/policies?namespace=team-a").text

    row = whole.partition('href="/policies/p"')[2].partition("</tr>")[0]
    assert re.findall(r'"number">(\d+)', row) == ["9", "1", "2", "3", "4"]
    assert "counted by 2 processes" in whole
    assert "the webhook at 10.0.0.9:9444 cannot be reached" in whole
    assert "Reviews: 9 matched, 1 changed, 2 refused, 3 warned of, 4 not evaluated." in one
    assert ">Refused<" not in of_namespace
    assert "they do not tell namespaces apart" in of_namespace
