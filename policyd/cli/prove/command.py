"""`policyd prove`: whether policies mean the same, or one is stricter, with an object if not."""

import json
import sys
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import click
import msgspec
import yaml

from policyd.api.meta import Json
from policyd.cli.bootstrap import shipped
from policyd.cli.formats.documents import load
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import show_all
from policyd.cli.options import TEXT_OR_JSON
from policyd.cli.planning.extras import extra
from policyd.cli.policies.proving import DEFAULT_STEPS, SolverSteps
from policyd.engine.model.compiled import CompiledPolicy
from policyd.errors import ConfigurationError
from policyd.program import FINDINGS
from policyd.standard_input import PATH

if TYPE_CHECKING:
    from policyd.prove.questions import Answer, Question, Side

_QUESTIONS: Final = {
    "equal": "both deny the same requests",
    "implies": "the first denies all that the second denies",
    "disjoint": "no request is denied by both",
    "subsumes": "each pod that the standard forbids is denied",
    "never-denies": "no request is denied",
    "always-denies": "each request that matches is denied",
    "never-errors": "no expression fails",
}
_OF_TWO: Final = ("equal", "implies", "disjoint", "subsumes")
_STANDARDS: Final = {
    "baseline": ("pod-security-baseline",),
    "restricted": ("pod-security-baseline", "pod-security-restricted"),
}
"""The policies of the library that are a Pod Security Standard."""
_NO_STANDARD: Final = (
    f"A Pod Security Standard is {' or '.join(f'`{each}`' for each in _STANDARDS)}."
)
_ARGUMENTS: Final = {"subsumes": "`baseline` or `restricted` and a file"}
_CONTROLS: Final = {
    "proved": "controls that are enforced",
    "refuted": "controls that are not",
    "unknown": "controls of which it is unknown",
}
"""By what is known of them."""
_CHANGES: Final = {
    (True, True): "the same",
    (True, False): "stricter",
    (False, True): "looser",
    (False, False): "stricter for some requests and looser for others",
}
"""By whether the new policy denies all that the old one denies, and the reverse."""


class _PathOrLevel(click.Path):
    """A file, or the name of a Pod Security Standard."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click has it
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401 - as click has it
        """Return a name as it is, and the path of a file that exists."""
        if value in _STANDARDS:
            return value
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            if ctx is not None and ctx.params.get("question") == "subsumes":
                self.fail(f"{error.message} {_NO_STANDARD}", param, ctx)
            raise


@click.command("prove")
@click.argument("question", type=click.Choice([*_QUESTIONS, "check"]))
@click.argument("paths", nargs=-1, required=True, type=_PathOrLevel(exists=True, allow_dash=True))
@click.option(
    "--against", type=PATH, metavar="OLD", help="The policies before a change, for `check`."
)
@click.option(
    "--policy", "name", default="", help="One policy of the files; all of them if left out."
)
@click.option(
    "--bound",
    type=click.IntRange(1, 16),
    default=4,
    show_default=True,
    help="Elements of each list and map, at most.",
)
@click.option(
    "--steps",
    type=SolverSteps(),
    default=DEFAULT_STEPS,
    show_default=True,
    help="Steps of the solver, for each kind of object and reason to deny.",
)
@click.option(
    "--timeout",
    "seconds",
    type=click.FloatRange(0.1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds for the solver, for each kind of object: a guard beside --steps.",
)
@TEXT_OR_JSON
def command(  # noqa: PLR0913, PLR0917 - one for each option
    question: str,
    paths: tuple[str, ...],
    against: str | None,
    name: str,
    bound: int,
    steps: int,
    seconds: float,
    output: Literal["text", "json"],
) -> None:
    r"""Prove what policies mean, or show an object for which it is not so.

    \b
    equal A B        A and B deny the same requests
    implies A B      A denies all that B denies
    disjoint A B     no request is denied by both
    never-denies A   no request is denied
    always-denies A  each request that A matches is denied
    never-errors A   no expression of A fails
    subsumes LEVEL A A denies all pods that a Pod Security Standard forbids: baseline or restricted
    check A --against OLD  whether A is stricter than OLD, looser, or both

    A solver looks for an object with lists and maps of at most --bound elements. The engine then
    evaluates the policies for the object; if it disagrees, the answer is unknown. A proof holds up
    to the bound. What has no formula, such as a call to the cluster, is named. How far the solver
    looks is counted in its steps, so that an answer does not depend on how busy the machine is;
    where it is unknown, more of them may decide it.

    Needs the extra `prove`: pip install 'policyd[prove]'.

    Exits with 0 if it is proved (`check`: if A is not looser), 1 if it is not, 2 if an argument
    is wrong.

    \b
    Examples:
      policyd prove equal old.yaml new.yaml
      policyd prove check new.yaml --against old.yaml
      policyd prove never-errors policies/gpu/policy.yaml
      policyd prove subsumes baseline security.yaml
    """
    questions: Any = extra("policyd.prove.questions", "prove", "proofs")
    if (question == "check") != (against is not None):
        raise click.UsageError(
            "`prove check` takes a policy, and --against the one before the change"
        )
    wanted = 2 if question in _OF_TWO else 1
    if len(paths) != wanted:
        files = _ARGUMENTS.get(question) or ("two files" if wanted == 2 else "one file")
        raise click.UsageError(f"`prove {question}` takes {files}, not {len(paths)}")
    if question == "subsumes":
        standard, policies = _standard(paths[0]), _policies(paths[1], name)
        (controls,) = [
            questions.answers_by_control(
                policies, standard, bound=bound, seconds=seconds, steps=steps
            )
            for _ in progress((question,), "proving")
        ]
        sys.exit(_show_controls(controls, output))
    sides = tuple(_policies(path, name) for path in paths)

    def ask(asked: str, *of: "Side") -> "Answer":
        found = questions.answer(
            cast("Question", asked), of, bound=bound, seconds=seconds, steps=steps
        )
        return cast("Answer", found)

    if against is not None:
        old, new = _policies(against, name), sides[0]
        pairs = (("looser", new, old), ("stricter", old, new))
        found = {what: ask("implies", *of) for what, *of in progress(pairs, "proving")}
        code = _show_change(found, output)
    else:
        (answered,) = [ask(asked, *sides) for asked in progress((question,), "proving")]
        code = _show(question, answered, output)
    sys.exit(code)


def _standard(level: str) -> tuple[CompiledPolicy, ...]:
    """Return the policies of a Pod Security Standard.

    Raises:
        click.UsageError: If there is no such level.
    """
    if level not in _STANDARDS:
        raise click.UsageError(f"{level!r} is not a Pod Security Standard: baseline or restricted")
    folder = shipped("policies") / "security"
    files = [str(folder / name / "policy.yaml") for name in _STANDARDS[level]]
    return tuple(load(files).policies)


def _policies(path: str, name: str) -> tuple[CompiledPolicy, ...]:
    """Return the policies of a file, or those of a name: the rules of a policy are several.

    Raises:
        ConfigurationError: If there are none, or a policy cannot be used.
    """
    loaded = load([path])
    show_all(finding for finding in loaded.findings if finding.severity == "error")
    found = tuple(p for p in loaded.policies if not name or name in (p.name, p.id))
    unusable = [policy for policy in found if policy.unusable]
    if unusable:
        raise ConfigurationError(f"{unusable[0].place}: {unusable[0].unusable}")
    if not found:
        names = ", ".join(policy.id for policy in loaded.policies)
        there = f"it has {names}" if names else "it has none that can be used"
        raise ConfigurationError(f"{path}: no policy {name}".rstrip() + f"; {there}")
    return found


def _show(question: str, found: "Answer", output: str) -> int:
    if output == "json":
        click.echo(json.dumps({"question": question, **_as_json(found)}))
    else:
        click.echo(_sentence(_QUESTIONS[question], found))
        _show_example(found)
    return 0 if found.verdict == "proved" else FINDINGS


def _show_controls(found: "dict[str, Answer]", output: str) -> int:
    """Show which controls of a standard policies have: the whole is proved if each one is."""
    of = {
        verdict: [name for name, each in found.items() if each.verdict == verdict]
        for verdict in ("refuted", "unknown", "proved")
    }
    whole = found[next(names for names in of.values() if names)[0]]
    if output == "json":
        controls = {name: _as_json(each) for name, each in found.items()}
        answered = {"question": "subsumes", **_as_json(whole), "controls": controls}
        click.echo(json.dumps(answered))
        return 0 if whole.verdict == "proved" else FINDINGS
    if whole.verdict != "proved":
        for verdict, words in _CONTROLS.items():
            if of[verdict]:
                click.echo(f"{words}: {', '.join(of[verdict])}")
    return _show("subsumes", whole, output)


def _sentence(what: str, found: "Answer") -> str:
    if found.verdict == "unknown":
        return f"unknown: {found.why}"
    if found.verdict == "refuted":
        return f"refuted: it is not so that {what}; the engine agrees on this {found.operation}:"
    return f"proved for lists and maps of up to {found.bound} elements: {what}"


def _show_change(found: "dict[str, Answer]", output: str) -> int:
    unknown = [each for each in found.values() if each.verdict == "unknown"]
    proved = found["looser"].verdict == "proved", found["stricter"].verdict == "proved"
    change = "unknown" if unknown else _CHANGES[proved]
    if output == "json":
        parts = {what: _as_json(each) for what, each in found.items()}
        click.echo(json.dumps({"question": "check", "change": change, **parts}))
    elif unknown:
        click.echo(f"unknown: {unknown[0].why}")
    else:
        click.echo(f"The new policy is {change}.")
        for what, each in found.items():
            if each.verdict == "refuted":
                denied = (
                    "only the new policy denies" if what == "stricter" else "only the old denies"
                )
                click.echo(f"{denied} this {each.operation}:")
                _show_example(each)
    return 0 if not unknown and proved[0] else FINDINGS


def _show_example(found: "Answer") -> None:
    if found.verdict != "refuted":
        return
    parts = (found.old_object, found.object, found.params, found.namespace)
    documents = [obj for obj in parts if obj is not None]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)


def _as_json(found: "Answer") -> dict[str, Json]:
    made: dict[str, Json] = {"verdict": found.verdict, "bound": found.bound}
    if found.why:
        made["why"] = found.why
    if found.verdict == "refuted":
        made |= {
            "operation": found.operation,
            "object": found.object,
            "oldObject": found.old_object,
            "user": msgspec.to_builtins(found.user),
            "params": found.params,
            "namespaceObject": found.namespace,
        }
    return made
