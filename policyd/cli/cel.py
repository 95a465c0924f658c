"""`policyd cel`: try expressions, see why they evaluate to what they do, and what there is."""

import json
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack

import click

from policyd.api.admission import Operation, UserInfo
from policyd.api.meta import Json
from policyd.cel import CelCompileError, CelError, Environment, LazyVariables, compile_expression
from policyd.cel.cost import Budget
from policyd.cel.describe import Entry, describe, function_names
from policyd.cel.environments import PLACES, UnknownEnvironmentError, environment_named
from policyd.cel.explain import Explanation, Outcome, Step, explain
from policyd.cel.functions import Version
from policyd.cel.kyverno import Chance, kyverno_environment, kyverno_values
from policyd.cel.types import Type
from policyd.cel.values_as_json import as_json
from policyd.cli.files import STANDARD_INPUT, content
from policyd.cli.report import show
from policyd.clock import SystemClock
from policyd.engine.documents import read_documents
from policyd.engine.facts import Facts
from policyd.engine.findings import Finding
from policyd.engine.functions import expression_environment
from policyd.engine.offline import Circumstances, ObjectError, namespace_lookup, request_for
from policyd.engine.surroundings import Surroundings
from policyd.engine.workloads import value_at
from policyd.errors import did_you_mean

Output = Literal["text", "json", "value"]
_Command = TypeVar("_Command", bound=Callable[..., Any])

_SHOWN: Final = 100
"""Characters of a value that are shown beside its expression."""
_FILE = click.Path(exists=True, allow_dash=True, dir_okay=False)


def _kyverno(version: Version) -> Environment:
    clock = SystemClock()
    chance = Chance(now=lambda: int(clock.now() * 10**9), dice=secrets.randbelow)
    return kyverno_environment(version, mutation=True, chance=chance)


def _policy(version: Version) -> Environment:
    return expression_environment(version, params=True, mutation=True)


_PLACES: Final = {**PLACES, "policy": _policy, "kyverno": _kyverno}


class _Inputs(TypedDict):
    """What the command line says an expression sees."""

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


class _Given(_Inputs):
    output: Output


def _environment(_context: click.Context, _option: click.Parameter, value: str) -> Environment:
    try:
        return environment_named(value, places=_PLACES)
    except UnknownEnvironmentError as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise click.BadParameter(f"{error}{hint}") from error


_ENV = click.option(
    "--env",
    default="vap",
    callback=_environment,
    metavar="PLACE[-VERSION]",
    help=f"Where the expression stands: {', '.join(_PLACES)}; as in map-1.37.",
)
_OPTIONS: Final = (
    click.argument("expression"),
    click.option("-f", "--filename", type=_FILE, help="The object, YAML or JSON, or -."),
    click.option("--old", type=_FILE, help="The object as it was: `oldObject`."),
    click.option("--params", type=_FILE, help="The parameter object: `params`."),
    click.option("--namespace-object", type=_FILE, help="The namespace: `namespaceObject`."),
    click.option(
        "--request", type=_FILE, help="Fields of `request` that differ from the object's."
    ),
    click.option(
        "--variable",
        "variables",
        multiple=True,
        metavar="NAME=EXPRESSION",
        help="A variable of the policy; may be repeated, and use those before.",
    ),
    _ENV,
    click.option(
        "--operation",
        type=click.Choice(["CREATE", "UPDATE", "DELETE", "CONNECT"]),
        help="What is done with the object.  [default: CREATE, with --old UPDATE]",
    ),
    click.option("-n", "--namespace", default="default", help="Namespace of an object without."),
    click.option("--user", default="someone", help="Who asks."),
    click.option("--group", "groups", multiple=True, help="A group of who asks; may be repeated."),
)


def _with_inputs(command: _Command) -> _Command:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.group("cel")
def command() -> None:
    """Try expressions of CEL, as policies have them."""


@command.command("eval")
@_with_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "value"]),
    default="text",
    help="Value, type and cost; the same as JSON; or the bare value as JSON.",
)
def eval_command(**given: Unpack[_Given]) -> None:
    r"""Evaluate EXPRESSION: print its value, type and cost.

    EXPRESSION may be - for standard input. It sees what a policy's expressions see; what is not
    given is null. The place and the version of Kubernetes decide what it may use.

    Exits with 0 if there is a value, 1 if the expression is wrong or fails.

    \b
    Examples:
      policyd cel eval 'object.spec.replicas <= 5' -f deployment.yaml
      policyd cel eval 'semver("1.2.3").major()' --env vap-1.33
      policyd cel eval 'pod.gpus()' -f job.yaml --env policy -o value
      policyd cel eval 'variables.team != ""' --variable 'team=object.metadata.name' -f pod.yaml
      kubectl get pod a -o json | policyd cel eval 'object.status.phase' -f -
    """
    _print(_explained(given), given["output"])


@command.command("explain")
@_with_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="For people, or for programs.",
)
def explain_command(**given: Unpack[_Given]) -> None:
    r"""Evaluate EXPRESSION and each part of it: print their values, type and cost.

    Parts the expression does not get to are named and not evaluated. Of a loop the first ten
    rounds are shown. The options are those of eval.

    Exits with 0 if there is a value, 1 if the expression is wrong or fails.

    \b
    Examples:
      policyd cel explain 'object.spec.containers.all(c, has(c.resources.limits))' -f pod.yaml
      policyd cel explain - -f pod.yaml --env vap-1.36 < expression.cel
    """
    explanation = _explained(given)
    if given["output"] == "json":
        steps = [_step_as_json(step) for step in explanation.steps]
        click.echo(json.dumps({**_as_json(explanation), "steps": steps}, indent=2))
        sys.exit(_exit_code(explanation))
    for step in explanation.steps:
        click.echo(_line_of(step))
    click.echo()
    _print(explanation, "text")


@command.command("functions")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=lambda *_: function_names())
@_ENV
def functions_command(names: tuple[str, ...], env: Environment) -> None:
    r"""Say what functions there are, or how those called NAME are called.

    Exits with 0 if there is one of each name, 1 if not.

    \b
    Examples:
      policyd cel functions
      policyd cel functions indexOf quantity
      policyd cel functions --env kyverno
    """
    entries = {entry.name: entry for entry in describe(env)}
    for name in names or entries:
        if name not in entries:
            near = did_you_mean(name, entries)
            since = env.unavailable.get(name)
            hint = f"it needs Kubernetes {since[0]}.{since[1]}" if since else near
            show(Finding(source=f"`{name}`", message="there is no such function", hint=hint))
        else:
            _print_entry(entries[name], brief=not names)
    sys.exit(0 if all(name in entries for name in names) else 1)


def _print_entry(entry: Entry, *, brief: bool) -> None:
    if brief:
        click.echo(f"{entry.name:28} {entry.summary}")
        return
    click.echo(f"{click.style(entry.name, bold=True)}: {entry.summary}")
    for signature in entry.signatures:
        click.echo(f"  {signature}")
    if entry.since:
        click.echo(f"  since Kubernetes {entry.since}")


# --- what the expression sees


def _explained(given: _Given) -> Explanation:
    """Evaluate what is given; exit if the expression cannot be used."""
    source = _text_of(given)
    activation = _activation(given)
    try:
        environment, activation = _with_variables(given, activation)
        return explain(source, environment, activation)
    except CelCompileError as error:
        for issue in error.issues:
            _show_issue(issue.line, issue.column, issue.message, (issue.hint, issue.source_line))
        sys.exit(1)


def _text_of(given: _Given) -> str:
    files = [given[name] for name in ("filename", "old", "params", "namespace_object", "request")]
    if [given["expression"], *files].count(STANDARD_INPUT) > 1:
        raise click.UsageError("standard input can be read only once")
    return sys.stdin.read() if given["expression"] == STANDARD_INPUT else given["expression"]


def _with_variables(
    given: _Given, activation: Mapping[str, object]
) -> tuple[Environment, dict[str, object]]:
    """Compile the policy's variables, each of which may use the ones before."""
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


def _activation(given: _Given) -> dict[str, object]:
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
        **kyverno_values(),
    }
    subject = old if obj is None else obj
    if subject is None:
        return activation
    facts = _facts(given, obj, old)
    if namespace is None and facts is not None:
        activation["namespaceObject"] = facts.namespace_object
    if facts is not None:
        activation |= _known(facts, request or {})
    return activation


def _known(facts: Facts, request: Mapping[str, Json]) -> dict[str, object]:
    """Return what is known of a request: all but its objects."""
    path = facts.whole.template
    return {
        "request": {**facts.request_variable, **request},
        "authorizer": facts.authorizer,
        "authorizer.requestResource": facts.request_resource_check,
        "images": facts.images,
        "workload": facts.subject,
        "pod": {} if path is None else value_at(facts.subject, path),
    }


def _facts(given: _Given, obj: Json, old: Json) -> Facts | None:
    """Return what is known of the request about an object; None if it is no Kubernetes object."""
    operation = given["operation"] or (
        "UPDATE" if obj is not None and old is not None else "CREATE"
    )
    user = UserInfo(username=given["user"], groups=given["groups"] or ("system:authenticated",))
    circumstances = Circumstances(operation=operation, user=user, namespace=given["namespace"])
    try:
        request = request_for(old if obj is None else obj, circumstances, old_object=old)
    except ObjectError:
        return None
    return Facts(request, Surroundings(namespaces=namespace_lookup([], {})))


def _object(path: str | None) -> Json:
    """Read the one document of a file."""
    if path is None:
        return None
    text = sys.stdin.buffer.read() if path == STANDARD_INPUT else content(Path(path))
    name = "stdin" if path == STANDARD_INPUT else path
    documents, findings = read_documents(text, name)
    if findings:
        for finding in findings:
            show(finding)
        sys.exit(1)
    if len(documents) != 1:
        raise click.UsageError(f"{name} has {len(documents)} documents, and should have one")
    return documents[0].value


# --- how it is told


def _print(explanation: Explanation, output: Output) -> None:
    """Print an outcome, and exit."""
    error = explanation.outcome.error
    if output == "json":
        click.echo(json.dumps(_as_json(explanation), indent=2))
    elif error is not None:
        _show_error(error, explanation)
    elif output == "value":
        click.echo(json.dumps(as_json(explanation.outcome.value), indent=2))
    else:
        click.echo(f"value: {json.dumps(as_json(explanation.outcome.value), indent=2)}")
        click.echo(f"type:  {explanation.result_type}")
        click.echo(f"cost:  {explanation.spent:,} (estimated: {explanation.estimate})")
    sys.exit(_exit_code(explanation))


def _exit_code(explanation: Explanation) -> int:
    return 0 if explanation.outcome.error is None else 1


def _show_error(error: CelError, explanation: Explanation) -> None:
    lines = explanation.source.splitlines()
    shown = lines[error.line - 1] if 0 < error.line <= len(lines) else ""
    _show_issue(error.line, error.column, error.message, (error.hint, shown))


def _show_issue(line: int, column: int, message: str, rest: tuple[str | None, str]) -> None:
    hint, excerpt = rest
    finding = Finding(
        source="expression", line=line, column=column, message=message, hint=hint, excerpt=excerpt
    )
    show(finding)


def _as_json(explanation: Explanation) -> dict[str, Any]:
    estimate = explanation.estimate
    return {
        **_outcome_as_json(explanation.outcome),
        "type": str(explanation.result_type),
        "cost": explanation.spent,
        "estimate": {
            "least": estimate.least,
            "most": estimate.most if estimate.is_bounded else None,
        },
    }


def _outcome_as_json(outcome: Outcome) -> dict[str, Any]:
    if outcome.error is None:
        return {"value": as_json(outcome.value)}
    place = {"line": outcome.error.line, "column": outcome.error.column}
    return {"error": outcome.error.message, **place}


def _step_as_json(step: Step) -> dict[str, Any]:
    evaluated = {"evaluated": False} if step.outcome is None else _outcome_as_json(step.outcome)
    place = {"line": step.line, "column": step.column, "depth": step.depth}
    return {"expression": step.text, **place, **evaluated}


def _line_of(step: Step) -> str:
    indent = "  " * step.depth
    text = step.text if len(step.text) <= _SHOWN else f"{step.text[: _SHOWN - 1]}…"
    if step.is_round:
        return f"{indent}{text} = {_brief(step.outcome)}"
    return f"{indent}{text}  →  {_brief(step.outcome)}"


def _brief(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not evaluated"
    if outcome.error is not None:
        return f"error: {outcome.error.message}"
    text = json.dumps(as_json(outcome.value))
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def _raw_help() -> Iterator[None]:
    """Let click see the backspaces that docstrings spell."""
    for each in command.commands.values():
        each.help = (each.help or "").replace("\\b\n", "\b\n")
        yield


tuple(_raw_help())
