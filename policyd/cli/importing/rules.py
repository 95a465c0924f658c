"""Which running jobs come into which queue: the rules of a file, and those of options."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Final, Literal

import click
import msgspec

from policyd.api.meta import Json, ObjectMeta
from policyd.api.names import SUBDOMAIN, is_subdomain
from policyd.api.selectors import LabelSelector
from policyd.cel import Budget, CelCompileError, CelError, Program, compile_expression
from policyd.cel.environments import base_environment
from policyd.cel.types import DYN
from policyd.cli.formats.documents import read_objects
from policyd.engine.compile.schema import DocumentShape, Schema, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.objects.match import labels_of
from policyd.errors import PolicydError, did_you_mean

API_VERSION: Final = "policyd.io/v1alpha1"
KIND: Final = "ImportRules"
MOST_RULES: Final = 1_000
_CONDITION_COST: Final = 1_000_000
"""Of one condition for one object, as the API server counts."""


class ImportMatch(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The jobs of a rule: those that meet all of these.

    Attributes:
        kinds: Their kinds, such as Job and Pod; all if there are none.
        namespaces: Names of namespaces, with `*` for any letters; all if there are none.
        namespace_selector: Labels of their namespaces.
        selector: Their labels.
        priority_classes: PriorityClasses of their pods.
        condition: A condition in CEL on `object` and `namespaceObject`.
    """

    kinds: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    selector: LabelSelector | None = None
    priority_classes: tuple[str, ...] = ()
    condition: str = ""


class ImportRule(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What becomes of some jobs. The first rule that matches a job counts.

    Attributes:
        name: Its name, for answers.
        match: The jobs that it is about; all if it does not say.
        queue: The LocalQueue, in the namespace of the job.
        queue_label: The label of the job that has the name of the LocalQueue.
        queues: LocalQueues by the value of that label, where they have other names.
        priority_class: The WorkloadPriorityClass that the job gets.
        skip: Whether the jobs stay out of the queues.
    """

    name: str
    match: ImportMatch = ImportMatch()
    queue: str = ""
    queue_label: str = ""
    queues: dict[str, str] = {}
    priority_class: str = ""
    skip: bool = False


class ImportRules(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A file of rules."""

    api_version: Literal["policyd.io/v1alpha1"]
    kind: Literal["ImportRules"]
    rules: tuple[ImportRule, ...]


class UndecidedError(PolicydError):
    """A condition cannot be evaluated for an object."""


@dataclass(frozen=True, slots=True)
class ImportRuleSet:
    """Rules with their conditions compiled."""

    rules: tuple[ImportRule, ...]
    conditions: Mapping[str, Program] = field(default_factory=dict)
    """By their text."""

    def concerns(self, kind: str) -> bool:
        """Tell whether a rule may be about jobs of a kind."""
        return any(not rule.match.kinds or kind in rule.match.kinds for rule in self.rules)

    def rule_for(
        self, obj: Mapping[str, Json], metadata: ObjectMeta, namespace: Json, priorities: set[str]
    ) -> ImportRule | None:
        """Return the first rule that matches a job; None if none does.

        Args:
            obj: The job.
            metadata: Its metadata.
            namespace: Its namespace; None if that may not be read.
            priorities: The PriorityClasses of its pods.

        Raises:
            UndecidedError: If a condition fails, or needs a namespace that may not be read.
        """
        for rule in self.rules:
            if self._matches(rule, obj, metadata, namespace, priorities):
                return rule
        return None

    def _matches(
        self,
        rule: ImportRule,
        obj: Mapping[str, Json],
        metadata: ObjectMeta,
        namespace: Json,
        priorities: set[str],
    ) -> bool:
        match, own = rule.match, metadata.namespace
        cheap = (
            not match.kinds or obj["kind"] in match.kinds,
            not match.namespaces or any(fnmatchcase(own, each) for each in match.namespaces),
            match.selector is None or match.selector.matches(metadata.labels),
            not match.priority_classes or not priorities.isdisjoint(match.priority_classes),
            not rule.queue_label or rule.queue_label in metadata.labels,
        )
        if not (all(cheap) and _selects(rule, own, namespace)):
            return False
        return not match.condition or self._holds(rule, obj, namespace)

    def _holds(self, rule: ImportRule, obj: Mapping[str, Json], namespace: Json) -> bool:
        program = self.conditions[rule.match.condition]
        variables = {"object": obj, "namespaceObject": namespace}
        try:
            return program.evaluate(variables, Budget(_CONDITION_COST)) is True
        except CelError as error:
            raise UndecidedError(
                f"the condition of rule `{rule.name}` fails: {error.message}"
            ) from error


def _selects(rule: ImportRule, name: str, namespace: Json) -> bool:
    """Tell whether a rule is about a namespace, by its labels.

    Raises:
        UndecidedError: If it may not be read.
    """
    selector = rule.match.namespace_selector
    if selector is None:
        return True
    if namespace is None:
        raise UndecidedError(
            f"rule `{rule.name}` selects by labels of namespace {name}, which may not be read"
        )
    return selector.matches(labels_of(namespace))


def queue_of(rule: ImportRule, metadata: ObjectMeta) -> str:
    """Return the LocalQueue that a rule gives a job."""
    if not rule.queue_label:
        return rule.queue
    value = metadata.labels.get(rule.queue_label, "")
    return rule.queues.get(value, value)


def rules_from_options(label: str, mapping: Iterable[str]) -> ImportRuleSet:
    """Return the rule of `--queue-label` and `--queue-mapping`.

    Raises:
        click.UsageError: If a mapping is not VALUE=QUEUE.
    """
    queues: dict[str, str] = {}
    for each in mapping:
        value, equals, queue = each.partition("=")
        if not equals or not is_subdomain(queue):
            raise click.UsageError(
                f"--queue-mapping `{each}` is not VALUE=QUEUE, such as research=team-a"
            )
        queues[value] = queue
    return ImportRuleSet((ImportRule(name="--queue-label", queue_label=label, queues=queues),))


def read_rules(path: str, kinds: Iterable[str]) -> tuple[ImportRuleSet | None, list[Finding]]:
    """Read a file of rules.

    Args:
        path: The file, or - for standard input.
        kinds: The kinds of jobs that there are.

    Returns:
        The rules, None if they cannot be used; and what is wrong.
    """
    documents, findings = read_objects([path])
    if findings:
        return None, findings
    if len(documents) != 1:
        where = documents[1] if len(documents) > 1 else documents[0]
        return None, [where.finding("one document of rules is expected, and there are more")]
    return rules_of(documents[0], kinds)


def rules_of(
    document: Document, kinds: Iterable[str]
) -> tuple[ImportRuleSet | None, list[Finding]]:
    """Return the rules of a document; as `read_rules`."""
    found = _shape().check(document)
    if found:
        return None, found
    given = msgspec.convert(document.value, ImportRules)
    conditions: dict[str, Program] = {}
    known = list(kinds)
    for index, rule in enumerate(given.rules):
        found += _mistakes(document, index, rule, known)
        if rule.match.condition:
            found += _compiled(document, index, rule, conditions)
    twice = [
        document.finding(f"two rules are called `{rule.name}`", ("rules", index, "name"))
        for index, rule in enumerate(given.rules)
        if rule.name in {each.name for each in given.rules[:index]}
    ]
    found += twice
    return (None if found else ImportRuleSet(given.rules, conditions)), found


def _mistakes(
    document: Document, index: int, rule: ImportRule, kinds: list[str]
) -> Iterable[Finding]:
    """Yield what the schema cannot say."""
    path = ("rules", index)
    given = [bool(rule.queue), bool(rule.queue_label), rule.skip]
    if sum(given) != 1:
        yield document.finding(
            f"rule `{rule.name}` needs one of `queue`, `queueLabel` and `skip: true`",
            path,
            hint="`queue: NAME` names a LocalQueue in the namespace of the job",
        )
    if rule.queues and not rule.queue_label:
        yield document.finding("`queues` needs `queueLabel`", (*path, "queues"), of_key=True)
    if rule.skip and rule.priority_class:
        message = "a rule with `skip` gives no priority class"
        yield document.finding(message, (*path, "priorityClass"), of_key=True)
    for value, queue in rule.queues.items():
        if not is_subdomain(queue):
            message = f"`{queue}` is not the name of a LocalQueue"
            yield document.finding(message, (*path, "queues", value))
    for number, kind in enumerate(rule.match.kinds):
        if kind not in kinds:
            hint = did_you_mean(kind, kinds) or f"kinds: {', '.join(sorted(kinds))}"
            yield document.finding(
                f"`{kind}` is not a kind that can be imported",
                (*path, "match", "kinds", number),
                hint=hint,
            )


def _compiled(
    document: Document, index: int, rule: ImportRule, conditions: dict[str, Program]
) -> Iterable[Finding]:
    environment = base_environment().extend(variables={"object": DYN, "namespaceObject": DYN})
    path = ("rules", index, "match", "condition")
    try:
        text = rule.match.condition
        conditions[text] = compile_expression(text, environment, wants="bool")
    except CelCompileError as error:
        for issue in error.issues:
            place = document.position_within(path, issue.line, issue.column)
            yield document.finding(issue.message, path, hint=issue.hint, at=place)


@cache
def _shape() -> DocumentShape:
    """Return the shape of a file of rules."""
    schema: Schema = schema_of(ImportRules)
    rule = schema["$defs"]["ImportRule"]["properties"]
    rule["name"] |= {"minLength": 1, "maxLength": 253}
    rule["queue"] |= {"pattern": f"^({SUBDOMAIN})?$"}
    rule["priorityClass"] |= {"pattern": f"^({SUBDOMAIN})?$"}
    schema["$defs"]["ImportRules"]["properties"]["rules"] |= {
        "minItems": 1,
        "maxItems": MOST_RULES,
    }
    return DocumentShape(schema)
