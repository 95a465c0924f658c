"""The inputs of an expression on the command line: an object, a request, params, variables."""

import secrets
import sys
from collections.abc import Mapping
from functools import partial
from typing import Final, TypedDict

import click

from policyd.api.admission import Operation, UserInfo
from policyd.api.meta import Json
from policyd.cel import Environment, LazyVariables, compile_expression
from policyd.cel.cost import Budget
from policyd.cel.environments import (
    DEFAULT_VERSION,
    ENVIRONMENTS,
    VERSIONS,
    Builder,
    UnknownEnvironmentError,
    environment_named,
)
from policyd.cel.functions import Version
from policyd.cel.types import Type
from policyd.cli.formats.files import text_of as contents_of
from policyd.cli.formats.report import exit_code, show_all
from policyd.cli.formats.snapshots import facts_in
from policyd.cli.options import GROUPS, SNAPSHOT, USER, together
from policyd.clock import SystemClock
from policyd.dialects.registry import FORMATS, dialect_of
from policyd.engine.documents.reading import read_documents
from policyd.engine.model.dialects import PolicyFormat, Volatile
from policyd.engine.model.environments import PolicyEnvironments
from policyd.engine.model.facts import Facts
from policyd.engine.model.functions import expression_environment
from policyd.engine.model.queue_facts import NOT_GIVEN, QueueFacts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.workloads import value_at
from policyd.engine.offline.requests import (
    ObjectError,
    RequestCircumstances,
    makers_for,
    namespace_lookup,
    request_for,
)
from policyd.standard_input import FILE, STANDARD_INPUT, standard_input


def _policy(version: Version) -> Environment:
    return expression_environment(version, params=True, mutation=True)


def _environments_of(
    written_in: PolicyFormat, version: Version = DEFAULT_VERSION
) -> PolicyEnvironments:
    volatile = Volatile(now=lambda: int(SystemClock().now() * 1e9), random_below=secrets.randbelow)
    dialect = dialect_of(version, volatile=volatile)
    return written_in.environments(dialect, False)  # noqa: FBT003 - no params


def _foreign(written_in: PolicyFormat, version: Version) -> Environment:
    return _environments_of(written_in, version).mutations


_ENVIRONMENTS: Final[Mapping[str, Builder]] = {
    **ENVIRONMENTS,
    "policy": _policy,
    **{each.name: partial(_foreign, each) for each in FORMATS},
}


class Inputs(TypedDict):
    """The options for the inputs of an expression."""

    expression: str
    filename: str | None
    old: str | None
    params: str | None
    namespace_object: str | None
    request: str | None
    variables: tuple[str, ...]
    env: Environment
    operation: Operation
    namespace: str
    user: str
    groups: tuple[str, ...]
    snapshot: str | None


def _environment(_context: click.Context, _option: click.Parameter, value: str) -> Environment:
    try:
        return environment_named(value, environments=_ENVIRONMENTS)
    except UnknownEnvironmentError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise click.BadParameter(f"{error}{hint}") from error


def _complete(_context: click.Context, _option: click.Parameter, begun: str) -> list[str]:
    """Complete the name of an environment, then its version."""
    kind, dash, _ = begun.partition("-")
    if not dash:
        return [each for each in _ENVIRONMENTS if each.startswith(begun)]
    names = (f"{kind}-{major}.{minor}" for major, minor in VERSIONS)
    return [name for name in names if name.startswith(begun)]


ENV: Final = click.option(
    "--env",
    default="vap",
    callback=_environment,
    shell_complete=_complete,
    metavar="NAME[-VERSION]",
    help=f"Environment of the expression: {', '.join(_ENVIRONMENTS)}; as in map-1.37.",
)
with_inputs = together(
    click.argument("expression"),
    click.option("-f", "--filename", type=FILE, help="The object, YAML or JSON, or -."),
    click.option("--old", type=FILE, help="The object as it was: `oldObject`."),
    click.option("--params", type=FILE, help="The parameter object: `params`."),
    click.option("--namespace-object", type=FILE, help="The namespace: `namespaceObject`."),
    click.option("--request", type=FILE, help="Fields of `request` that differ from the object's."),
    click.option(
        "--variable",
        "variables",
        multiple=True,
        metavar="NAME=EXPRESSION",
        help="A variable of the policy; may be repeated, and use those before.",
    ),
    ENV,
    click.option(
        "--operation",
        type=click.Choice(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
        help="Operation on the object.  [default: CREATE, with --old UPDATE]",
    ),
    click.option(
        "-n", "--namespace", default="default", help="Namespace of an object that has none."
    ),
    USER,
    GROUPS,
    SNAPSHOT,
)
"""Give a command an expression, and the options for its inputs."""


def text_of(given: Inputs) -> str:
    """Return the text of the expression.

    Raises:
        click.UsageError: If standard input is named twice.
    """
    files = [given[name] for name in ("filename", "old", "params", "namespace_object", "request")]
    files.append(given["snapshot"])
    if given["expression"] != STANDARD_INPUT:
        return given["expression"]
    try:
        return standard_input().decode()
    except UnicodeDecodeError as error:
        raise click.UsageError("the expression on standard input is not UTF-8") from error


def with_variables(
    given: Inputs, activation: Mapping[str, object]
) -> tuple[Environment, dict[str, object]]:
    """Add the policy's variables, each of which may use the ones before.

    Raises:
        CelCompileError: If one cannot be used.
    """
    environment, programs = given["env"], {}
    types: dict[str, Type] = {}
    for text in given["variables"]:
        name, equals, source = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"`{text}` is not of the form NAME=EXPRESSION")
        programs[name] = compile_expression(source, environment)
        types[name] = programs[name].result_type
        environment = environment.extend(structs={"kubernetes.variables": dict(types)})
    lazy = LazyVariables(programs, activation, Budget())
    return environment, {**activation, "variables": lazy}


def activation_of(given: Inputs) -> dict[str, object]:
    """Return the values of the variables, but for the policy's own."""
    obj, old, params, namespace, request = (
        _object(given[name])
        for name in ("filename", "old", "params", "namespace_object", "request")
    )
    activation: dict[str, object] = {
        "object": obj,
        "oldObject": old,
        "params": params,
        "namespaceObject": namespace,
        "request": request or {},
        **{
            name: value for each in FORMATS for name, value in _environments_of(each).values.items()
        },
    }
    queues: QueueFacts = facts_in(given["snapshot"]) if given["snapshot"] else NOT_GIVEN
    activation |= queues.variables(given["namespace"], "")
    subject = old if obj is None else obj
    if subject is None:
        return activation
    facts = _facts(given, obj, old)
    if namespace is None and facts is not None:
        activation["namespaceObject"] = facts.namespace_object
    if facts is not None:
        activation |= _known(facts, request or {})
        activation |= queues.variables(facts.request.namespace, facts.queue_name)
    return activation


def _known(facts: Facts, request: Mapping[str, Json]) -> dict[str, object]:
    """Return the attributes of a request, with its objects, which Kyverno's kinds have there."""
    path = facts.whole.template
    objects = {"object": facts.object, "oldObject": facts.old_object}
    return {
        "request": {**facts.request_variable, **objects, **request},
        "authorizer": facts.authorizer,
        "authorizer.requestResource": facts.request_resource_check,
        "images": facts.images,
        "workload": facts.subject,
        "maker": facts.maker,
        "pod": {} if path is None else value_at(facts.subject, path),
    }


def _facts(given: Inputs, obj: Json, old: Json) -> Facts | None:
    """Return the attributes of the request for an object; None if it is no Kubernetes object."""
    operation = given["operation"] or (
        "UPDATE" if obj is not None and old is not None else "CREATE"
    )
    user = UserInfo(username=given["user"], groups=given["groups"] or ("system:authenticated",))
    circumstances = RequestCircumstances(
        operation=operation, user=user, namespace=given["namespace"]
    )
    try:
        request = request_for(old if obj is None else obj, circumstances, old_object=old)
    except ObjectError:
        return None
    makers = makers_for(given["user"])
    return Facts(request, PolicyContext(namespaces=namespace_lookup([], {}), makers=makers))


def _object(path: str | None) -> Json:
    """Read the one document of a file."""
    if path is None:
        return None
    name, text = contents_of(path)
    documents, findings = read_documents(text, name)
    if findings:
        show_all(findings)
        sys.exit(exit_code(findings))
    if len(documents) != 1:
        raise click.UsageError(f"{name} has {len(documents)} documents, and should have one")
    return documents[0].value
