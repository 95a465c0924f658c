"""The policies: what they do, whether they can be used, and what reports say of them."""

from typing import Final

from policyd.dashboard.view import MOST_CHARACTERS, PageRequest, PageView
from policyd.dashboard.views.policies import ReadPolicies, known, policies_view, policy_view
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.questions.policies import TooManyPoliciesError, cluster_policies
from policyd.questions.reports import ReportedResults, reported


async def _read(request: PageRequest) -> ReadPolicies:
    missing = ""
    try:
        policies, bindings = await cluster_policies(request.client)
    except (ForbiddenError, TooManyPoliciesError) as error:
        policies, bindings, missing = (), (), str(error)
    try:
        results = await reported(request.client, request.scope)
    except ForbiddenError as error:
        results = ReportedResults({}, str(error))
    return ReadPolicies(
        policies=policies,
        bindings=bindings,
        missing=missing,
        results=results.results,
        results_missing=results.missing,
        name=request.path.get("name", ""),
    )


async def _read_one(request: PageRequest) -> ReadPolicies:
    read = await _read(request)
    if not known(read):
        raise NotFoundError(
            f"there is no policy {read.name[:MOST_CHARACTERS]}", hint=read.missing or None
        )
    return read


VIEW: Final = PageView(
    path="/policies",
    title="Policies",
    template="policies.html",
    read=_read,
    build=policies_view,
    live=("attention", "list"),
    shared=False,
)
ONE: Final = PageView(
    path="/policies/{name}",
    title="Policy",
    template="policy.html",
    read=_read_one,
    build=policy_view,
    live=("status", "results"),
    shared=False,
    in_menu=False,
)
