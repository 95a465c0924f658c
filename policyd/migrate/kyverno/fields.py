"""Know every field of a legacy policy, so that none is left out of what is made of it in silence.

A field is converted, decides nothing, or is refused by its name. A new field of Kyverno is refused
until it is in the table.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from policyd.api.meta import Json
from policyd.patch.operations import Path


@dataclass(frozen=True)
class RefusedField:
    """A field that has no counterpart: its place, why, and what to do."""

    path: Path
    reason: str
    hint: str


@dataclass(frozen=True)
class _Level:
    """The fields of one level of a policy.

    Attributes:
        name: What the level is called.
        known: The fields that are converted, or refused where they are converted.
        harmless: Fields that decide nothing about a request, and why.
        refused: Fields without a counterpart, with why and what to do, unless a value is as if
            the field were absent.
        alone: Fields of which one may be there.
        inner: The levels of the values of fields, or of the items of their lists.
    """

    name: str
    known: tuple[str, ...]
    harmless: Mapping[str, str] | None = None
    refused: Mapping[str, tuple[str, str, Json]] | None = None
    alone: tuple[str, ...] = ()
    inner: Mapping[str, str] | None = None


_NOT_KNOWN: Final = "delete it if it is misspelt; else keep the rule in Kyverno"
_OWN_RULE: Final = "write a rule for each"
_CONDITIONS: Final = {"any": "condition", "all": "condition"}
_ASKS: Final = ("pattern", "anyPattern", "deny", "foreach", "podSecurity", "cel", "manifests")
_PATCHES: Final = ("patchStrategicMerge", "patchesJson6902", "foreach")
_FILTER: Final = ("resources", "subjects", "roles", "clusterRoles")

_LEVELS: Final = {
    "spec": _Level(
        "`spec`",
        (
            *("rules", "validationFailureAction", "validationFailureActionOverrides"),
            *("applyRules", "failurePolicy", "webhookConfiguration", "generateExisting"),
            *("generateExistingOnPolicyUpdate", "mutateExistingOnPolicyUpdate"),
        ),
        harmless={
            "background": "it is about reports, not about requests",
            "schemaValidation": "it is about the policy itself",
            "webhookTimeoutSeconds": "it is about the webhook of Kyverno",
            "useServerSideApply": "it is how Kyverno writes what it generates",
        },
        refused={
            "admission": (
                "the policy does not concern requests: what is made of it would",
                "run it in the background in Kyverno",
                True,
            ),
            "emitWarning": ("it warns who made the request", "delete it", False),
        },
        inner={"webhookConfiguration": "webhook", "validationFailureActionOverrides": "override"},
    ),
    "webhook": _Level(
        "`webhookConfiguration`",
        ("failurePolicy", "matchConditions"),
        harmless={"timeoutSeconds": "it is about the webhook of Kyverno"},
        inner={"matchConditions": "matchCondition"},
    ),
    "matchCondition": _Level("a condition on requests", ("name", "expression")),
    "override": _Level("an override", ("action", "namespaces", "namespaceSelector")),
    "rule": _Level(
        "a rule",
        (
            *("name", "context", "match", "exclude", "preconditions"),
            *("validate", "mutate", "generate", "verifyImages", "celPreconditions"),
        ),
        harmless={"skipBackgroundRequests": "it is about requests of Kyverno itself"},
        refused={
            "imageExtractors": ("it finds images in other fields", "keep the rule in Kyverno", {}),
            "reportProperties": ("it adds properties to reports", "delete it", {}),
        },
        alone=("validate", "mutate", "generate"),
        inner={
            "match": "match",
            "exclude": "match",
            "preconditions": "conditions",
            "context": "context",
            "validate": "validate",
            "mutate": "mutate",
            "celPreconditions": "matchCondition",
        },
    ),
    "match": _Level(
        "`match` or `exclude`",
        ("any", "all", *_FILTER),
        alone=("any", "all"),
        inner={"any": "filter", "all": "filter"},
    ),
    "filter": _Level("a filter", _FILTER),
    "conditions": _Level(
        "conditions",
        ("any", "all", "key", "operator", "value", "message"),
        refused={
            "conditions": (
                "Kyverno does not read conditions there",
                "move its `any` and `all` one level up",
                None,
            ),
        },
        inner=_CONDITIONS,
    ),
    "condition": _Level(
        "a condition",
        ("key", "operator", "value"),
        harmless={"message": "the message of the rule is shown; it decides nothing"},
    ),
    "context": _Level(
        "a variable of `context`",
        ("name", "variable", "configMap", "apiCall", "imageRegistry", "globalReference"),
        alone=("variable", "configMap", "apiCall", "imageRegistry", "globalReference"),
        inner={
            "variable": "variable",
            "configMap": "configMap",
            "apiCall": "apiCall",
            "imageRegistry": "imageRegistry",
        },
    ),
    "variable": _Level("`variable`", ("value", "jmesPath", "default")),
    "configMap": _Level("`configMap`", ("name", "namespace")),
    "apiCall": _Level("`apiCall`", ("urlPath", "method", "data", "service", "jmesPath")),
    "imageRegistry": _Level(
        "`imageRegistry`", ("reference", "jmesPath", "imageRegistryCredentials")
    ),
    "validate": _Level(
        "`validate`",
        ("message", "failureAction", "failureActionOverrides", *_ASKS),
        refused={
            "allowExistingViolations": (
                "what is made of the rule refuses updates of objects that violate it already",
                "delete it, or compare with `oldObject` in what is made of it",
                False,
            ),
            "assert": ("it is of another engine of Kyverno", "keep the rule in Kyverno", None),
            "validationFailureAction": (
                "Kyverno does not read it in a rule",
                "write `failureAction`",
                None,
            ),
        },
        alone=_ASKS,
        inner={
            "failureActionOverrides": "override",
            "deny": "deny",
            "foreach": "asked",
            "podSecurity": "podSecurity",
            "cel": "cel",
        },
    ),
    "cel": _Level(
        "`cel`",
        ("expressions", "variables", "auditAnnotations", "paramKind", "paramRef"),
        harmless={"generate": "it is how Kyverno enforces the rule"},
        inner={
            "expressions": "expression",
            "variables": "matchCondition",
            "auditAnnotations": "annotation",
        },
    ),
    "expression": _Level("an expression", ("expression", "message", "messageExpression", "reason")),
    "annotation": _Level("an audit annotation", ("key", "valueExpression")),
    "podSecurity": _Level(
        "`podSecurity`", ("level", "version", "exclude"), inner={"exclude": "exclusion"}
    ),
    "exclusion": _Level("an exclusion", ("controlName", "images", "restrictedField", "values")),
    "deny": _Level("`deny`", ("conditions",), inner={"conditions": "conditions"}),
    "asked": _Level(
        "`foreach`",
        ("list", "elementScope", "context", "preconditions", *_ASKS[:4]),
        alone=_ASKS[:4],
        inner={
            "context": "context",
            "preconditions": "conditions",
            "deny": "deny",
            "foreach": "asked",
        },
    ),
    "mutate": _Level(
        "`mutate`",
        ("targets", "mutateExistingOnPolicyUpdate", *_PATCHES),
        alone=_PATCHES,
        inner={"foreach": "changed"},
    ),
    "changed": _Level(
        "`foreach`",
        ("list", "order", "context", "preconditions", *_PATCHES),
        alone=_PATCHES,
        inner={"context": "context", "preconditions": "conditions", "foreach": "changed"},
    ),
}
_ACTIONS: Final = ("audit", "enforce")
_ACTION_FIELDS: Final = ("validationFailureAction", "failureAction", "action")


def refused_fields(given: Json, level: str, path: Path = ()) -> Iterator[RefusedField]:
    """Yield the fields of a part of a policy that would be left out.

    Args:
        given: The part, or a list of such parts.
        level: What the part is: `spec` without its rules, `rule`, or a level below.
        path: Where it is.
    """
    if isinstance(given, list):
        for index, each in enumerate(given):
            yield from refused_fields(each, level, (*path, index))
    if not isinstance(given, Mapping):
        return
    fields = _LEVELS[level]
    for name, value in given.items():
        yield from _refused(fields, str(name), value, (*path, str(name)))
        inner = (fields.inner or {}).get(name)
        if inner:
            yield from refused_fields(value, inner, (*path, str(name)))
    several = [name for name in fields.alone if given.get(name) is not None]
    if len(several) > 1:
        named = " and ".join(f"`{name}`" for name in several)
        yield RefusedField(
            (*path, several[1]), f"{fields.name} has {named}: one would be left out", _OWN_RULE
        )


def _refused(fields: _Level, name: str, value: Json, path: Path) -> Iterator[RefusedField]:
    if name in (fields.refused or {}):
        reason, hint, absent = (fields.refused or {})[name]
        if value is not None and value != absent:
            yield RefusedField(path, f"`{name}` has no counterpart: {reason}", hint)
    elif name not in fields.known and name not in (fields.harmless or {}):
        yield RefusedField(path, f"the field `{name}` of {fields.name} is not known", _NOT_KNOWN)
    elif name in _ACTION_FIELDS and value and str(value).lower() not in _ACTIONS:
        yield RefusedField(
            path, f"`{name}` is `{value}`, which is no action", "write `Enforce` or `Audit`"
        )
