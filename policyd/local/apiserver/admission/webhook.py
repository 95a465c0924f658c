"""One webhook of a registered configuration, ready to be asked whether a write concerns it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import msgspec

from policyd.api.admission import FailurePolicy, MatchPolicy, Rule
from policyd.api.meta import Json
from policyd.api.selectors import LabelSelector
from policyd.cel import (
    Budget,
    CelCompileError,
    CelError,
    Environment,
    Program,
    admission_environment,
    compile_expression,
)
from policyd.engine.objects.match import (
    NamespaceLookup,
    rule_names,
    rules_match,
    selects_namespace,
    selects_object,
)
from policyd.engine.objects.match import (
    RequestAttributes as Envelope,
)
from policyd.local.apiserver.admission.attributes import WriteAttributes
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.status import Cause, Object, forbidden, required, wrong

CONDITIONS_BUDGET = 2_500_000
"""CEL cost that the matchConditions of one webhook share."""

EXEMPT_GROUP = "admissionregistration.k8s.io"
"""No webhook may stand between an administrator and the webhooks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchCondition:
    """One matchCondition."""

    name: str
    program: Program


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfiguredWebhook:
    """A webhook as its configuration has it; `index` is its place there."""

    name: str
    configuration: str
    index: int
    client: Object
    rules: tuple[Rule, ...]
    namespace_selector: LabelSelector
    object_selector: LabelSelector
    conditions: tuple[MatchCondition, ...]
    failure_policy: FailurePolicy
    match_policy: MatchPolicy
    timeout_seconds: int
    reinvocation: Literal["Never", "IfNeeded"] | None
    """None for a validating webhook."""


def read_webhooks(configuration: Object) -> Iterator[ConfiguredWebhook]:
    """Read the webhooks of a stored configuration, which has its defaults."""
    for index, given in enumerate(configuration.get("webhooks", ())):
        yield ConfiguredWebhook(
            name=given["name"],
            configuration=configuration["metadata"]["name"],
            index=index,
            client=given["clientConfig"],
            rules=msgspec.convert(given.get("rules", ()), tuple[Rule, ...]),
            namespace_selector=msgspec.convert(given["namespaceSelector"], LabelSelector),
            object_selector=msgspec.convert(given["objectSelector"], LabelSelector),
            conditions=tuple(
                MatchCondition(name=c["name"], program=_compiled(c["expression"]))
                for c in given.get("matchConditions", ())
            ),
            failure_policy=given["failurePolicy"],
            match_policy=given["matchPolicy"],
            timeout_seconds=given["timeoutSeconds"],
            reinvocation=given.get("reinvocationPolicy"),
        )


def conditions_environment() -> Environment:
    """Return the environment of a webhook's matchConditions."""
    return admission_environment(params=False, mutation=False)


@lru_cache(maxsize=512)
def _compiled(expression: str) -> Program:
    """Compile a condition, once for all versions of a configuration that have it."""
    return compile_expression(expression, conditions_environment(), wants="bool")


def check_conditions(webhook: Object, path: str) -> Iterator[Cause]:
    """Check the matchConditions of a webhook in a configuration that is to be stored."""
    for index, condition in enumerate(webhook.get("matchConditions", ())):
        inner = f"{path}.matchConditions[{index}]"
        if not condition.get("name"):
            yield required(f"{inner}.name")
        expression = condition.get("expression", "")
        try:
            _compiled(expression)
        except CelCompileError as error:
            yield wrong(f"{inner}.expression", expression, f"compilation failed: {error}")


def matching_version(
    webhook: ConfiguredWebhook, attributes: WriteAttributes, registry: Registry
) -> Served | None:
    """Return the version of the object's kind that a webhook's rules name; None if they do not.

    With `matchPolicy: Equivalent`, any served version of the kind will do.
    """
    served = attributes.served
    if served.group == EXEMPT_GROUP:
        return None
    if rules_match(webhook.rules, (), envelope(attributes, served)):
        return served
    if webhook.match_policy == "Exact" or served.custom is None:
        return None
    others = (s for s in registry.versions(served.resource) if s is not served)
    return next(
        (s for s in others if rules_match(webhook.rules, (), envelope(attributes, s))), None
    )


def may_concern(
    webhook: ConfiguredWebhook, versions: Iterable[Served], attributes: WriteAttributes
) -> bool:
    """Tell whether a rule names a resource, in one of its versions, with this operation."""
    seen = [envelope(attributes, each) for each in versions]
    return any(rule_names(rule, each) for rule in webhook.rules for each in seen)


def envelope(attributes: WriteAttributes, served: Served) -> Envelope:
    """Return the attributes that rules match."""
    return Envelope(
        group=served.group,
        version=served.version,
        resource=served.plural,
        subresource=attributes.subresource,
        operation=attributes.operation,
        namespace=attributes.namespace,
        name=attributes.name,
    )


def selects(
    webhook: ConfiguredWebhook, attributes: WriteAttributes, namespaces: NamespaceLookup
) -> bool:
    """Tell whether a webhook's selectors let a write through to it."""
    old, new = attributes.old_object, attributes.object
    seen = envelope(attributes, attributes.served)
    return selects_namespace(
        webhook.namespace_selector, seen, new, namespaces=namespaces
    ) and selects_object(webhook.object_selector, new, old)


def conditions_hold(webhook: ConfiguredWebhook, attributes: WriteAttributes, review: Json) -> bool:
    """Tell whether all matchConditions are true.

    Raises:
        StatusError: If one cannot be evaluated, none is false, and the failurePolicy is Fail.
    """
    if not webhook.conditions:
        return True
    variables = {
        "object": review["object"],
        "oldObject": review["oldObject"],
        "request": review,
        "namespaceObject": None,
        "authorizer": None,
    }
    budget, failed = Budget(CONDITIONS_BUDGET), ""
    for condition in webhook.conditions:
        try:
            if not condition.program.evaluate(variables, budget):
                return False
        except CelError as error:
            failed = failed or f"expression '{condition.program.source}' resulted in error: {error}"
    if failed and webhook.failure_policy == "Fail":
        raise forbidden(attributes.served.resource, attributes.name, failed)
    return not failed
