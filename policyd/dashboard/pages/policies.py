"""The policies: what they do, whether they can be used, and what reports say of them."""

from collections.abc import AsyncIterator, Mapping
from typing import Final, NamedTuple

from policyd.api.meta import Json
from policyd.dashboard.view import MOST_CHARACTERS, PageRequest, PageView
from policyd.dashboard.views.policies import ReadPolicies, known, policies_view, policy_view
from policyd.dashboard.views.review_counts import Reviewed
from policyd.engine.offline.report import APIS, ReportApi, ReportedResult, results_in
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.reports import MANAGED_BY, resource_of
from policyd.questions.policies import TooManyPoliciesError, cluster_policies


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
        reviewed=await _reviewed(request),
    )


REVIEWS_SECONDS: Final = 5.0
"""For how long the webhooks are not asked again."""


async def _reviewed(request: PageRequest) -> Reviewed | None:
    """Return what the webhooks count, which is of all namespaces: for those who see all of them."""
    if request.reviews is None or request.scope:
        return None
    try:
        found, stale = await request.feeds.shared(
            ("reviews",), request.reviews, fresh_seconds=REVIEWS_SECONDS
        )
    except PolicydError as error:
        return Reviewed(missing=(str(error),))
    return found if stale is None else found._replace(missing=(*found.missing, str(stale)))


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


MOST_NAMESPACES: Final = 2_000
"""Namespaces whose reports are read."""
PAGE: Final = 50
"""Reports that are read at a time: each has up to 400 results."""

Results = Mapping[str, tuple[ReportedResult, ...]]
"""By namespace; "" for the objects of no namespace."""


class ReportedResults(NamedTuple):
    """The results in the reports that a user may read.

    Attributes:
        results: By namespace.
        missing: Why there are none, or not all; "" if these are all.
    """

    results: Results
    missing: str = ""


async def reported(reader: Reader, scope: str) -> ReportedResults:
    """Return the results of a namespace, or of all if `scope` is "".

    Raises:
        ApiError: If the API server does not answer.
    """
    api = await _served(reader)
    if api is None:
        return ReportedResults({}, "the cluster has no kind of report, such as PolicyReport")
    found: dict[str, tuple[ReportedResult, ...]] = {}
    try:
        async for namespace, report in _reports(reader, api, scope):
            if len(found) >= MOST_NAMESPACES:
                return ReportedResults(found, f"only {MOST_NAMESPACES} namespaces are read")
            results = tuple(results_in(report))
            if results:
                found[namespace] = results
    except ForbiddenError as error:
        return ReportedResults(found, str(error))
    return ReportedResults(found)


async def _served(reader: Reader) -> ReportApi | None:
    for api in APIS:
        kinds = {each.kind for each in await served_resources(reader, api.api_version)}
        if {api.kind, api.cluster_kind} <= kinds:
            return api
    return None


async def _reports(
    reader: Reader, api: ReportApi, scope: str
) -> AsyncIterator[tuple[str, dict[str, Json]]]:
    resource = resource_of(api, namespaced=True)
    async for page in pages(
        reader, resource, into=dict, namespace=scope, label_selector=MANAGED_BY, limit=PAGE
    ):
        for each in page.items:
            yield str(each["metadata"].get("namespace", "")), each
    if not scope:
        of_cluster = resource_of(api, namespaced=False)
        async for page in pages(reader, of_cluster, into=dict, label_selector=MANAGED_BY):
            for each in page.items:
                yield "", each
