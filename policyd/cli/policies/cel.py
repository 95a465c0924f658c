"""`policyd cel`: evaluate and explain CEL expressions, and list the functions."""

import json
import sys
from typing import Any, Literal, Unpack

import click

from policyd.cel import CelCompileError, CelError, Environment
from policyd.cel.describe import FunctionEntry, describe, function_names
from policyd.cel.explain import Explanation, explain
from policyd.cli.formats.report import show
from policyd.cli.formats.steps import line_of, outcome_as_json, step_as_json, written
from policyd.cli.formats.tables import show_table
from policyd.cli.options import TEXT_OR_JSON
from policyd.cli.policies.cel_inputs import (
    ENV,
    Inputs,
    activation_of,
    text_of,
    with_inputs,
    with_variables,
)
from policyd.engine.documents.findings import Finding
from policyd.engine.model.functions import METHODS
from policyd.errors import did_you_mean

Output = Literal["text", "json", "value"]


class _Given(Inputs):
    """The arguments of the command."""

    output: Output


@click.group("cel")
def command() -> None:
    """Try expressions of CEL, as policies have them."""


@command.command("eval")
@with_inputs
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "value"]),
    default="text",
    help="Value, type and cost; the same as JSON; or the bare value as JSON.",
)
def eval_command(**given: Unpack[_Given]) -> None:
    r"""Evaluate EXPRESSION: print its value, type and cost.

    EXPRESSION may be - for standard input. It has the variables of a policy's expressions;
    those that are not given are null. The environment and the version of Kubernetes determine
    the available functions.

    Exits with 0 if there is a value, 1 if the expression is invalid or fails.

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
@with_inputs
@TEXT_OR_JSON
def explain_command(**given: Unpack[_Given]) -> None:
    r"""Evaluate EXPRESSION and each part of it: print their values, type and cost.

    Parts that are not reached are listed without a value. The first ten iterations of a loop
    are shown. The options are those of eval.

    Exits with 0 if there is a value, 1 if the expression is invalid or fails.

    \b
    Examples:
      policyd cel explain 'object.spec.containers.all(c, has(c.resources.limits))' -f pod.yaml
      policyd cel explain - -f pod.yaml --env vap-1.36 < expression.cel
    """
    explanation = _explained(given)
    if given["output"] == "json":
        steps = [step_as_json(step) for step in explanation.steps]
        click.echo(json.dumps({**_as_json(explanation), "steps": steps}, indent=2))
        sys.exit(0 if written(explanation.outcome)[1] is None else 1)
    for step in explanation.steps:
        click.echo(line_of(step))
    click.echo()
    _print(explanation, "text")


def _complete(_context: click.Context, _argument: click.Parameter, begun: str) -> list[str]:
    return [name for name in (*function_names(), *METHODS) if name.startswith(begun)]


@command.command("functions")
@click.argument("names", nargs=-1, metavar="[NAME]…", shell_complete=_complete)
@ENV
def functions_command(names: tuple[str, ...], env: Environment) -> None:
    r"""List the functions, or show the signatures of those called NAME.

    Exits with 0 if there is one of each name, 1 if not.

    \b
    Examples:
      policyd cel functions
      policyd cel functions indexOf quantity
      policyd cel functions --env kyverno
    """
    entries = {entry.name: entry for entry in describe(env)}
    if not names:
        show_table(["FUNCTION", "WHAT IT DOES"], [(e.name, e.summary) for e in entries.values()])
    for name in names:
        if name not in entries:
            near = did_you_mean(name, entries)
            since = env.unavailable.get(name)
            hint = f"it needs Kubernetes {since[0]}.{since[1]}" if since else near
            show(Finding(source=f"`{name}`", message="unknown function", hint=hint))
        else:
            _print_entry(entries[name])
    sys.exit(0 if all(name in entries for name in names) else 1)


def _print_entry(entry: FunctionEntry) -> None:
    click.echo(f"{click.style(entry.name, bold=True)}: {entry.summary}")
    for signature in entry.signatures:
        click.echo(f"  {signature}")
    if entry.since:
        click.echo(f"  since Kubernetes {entry.since}")


def _explained(given: _Given) -> Explanation:
    """Evaluate the given expression; exit if it is invalid."""
    source = text_of(given)
    activation = activation_of(given)
    try:
        environment, activation = with_variables(given, activation)
        return explain(source, environment, activation)
    except CelCompileError as error:
        for issue in error.issues:
            _show_issue(issue.line, issue.column, issue.message, (issue.hint, issue.source_line))
        sys.exit(1)


def _print(explanation: Explanation, output: Output) -> None:
    """Print an outcome, and exit."""
    value, error = written(explanation.outcome)
    if output == "json":
        click.echo(json.dumps(_as_json(explanation), indent=2))
    elif error is not None:
        _show_error(error, explanation)
    elif output == "value":
        click.echo(json.dumps(value, indent=2))
    else:
        click.echo(f"value: {json.dumps(value, indent=2)}")
        click.echo(f"type:  {explanation.result_type}")
        click.echo(f"cost:  {explanation.spent:,} (estimated: {explanation.estimate})")
    sys.exit(0 if error is None else 1)


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
        **outcome_as_json(explanation.outcome),
        "type": str(explanation.result_type),
        "cost": explanation.spent,
        "estimate": {
            "least": estimate.least,
            "most": estimate.most if estimate.is_bounded else None,
        },
    }
