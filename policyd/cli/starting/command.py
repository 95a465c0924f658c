"""`policyd init`: a repository of policies, with their tests, CI and manifests for GitOps."""

import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, TypedDict, Unpack, cast

import click

from policyd.cli.bootstrap import shipped
from policyd.cli.formats.report import count
from policyd.cli.options import TEXT_OR_JSON
from policyd.cli.policies.library import description_of, folder_of, folders
from policyd.cli.starting.contents import (
    SHOWN_URL,
    Ci,
    Enforcement,
    GitOps,
    RepositoryOptions,
    files_of,
)
from policyd.errors import ConfigurationError, PolicydError, system_reason
from policyd.policy_files import default_files

_NONE = "none"
_ENFORCEMENTS = ("Deny", "Warn", "Audit")


class _Given(TypedDict):
    """The arguments of the command."""

    folder: Path
    names: tuple[str, ...]
    enforcement: Enforcement | None
    ci: tuple[str, ...]
    gitops: tuple[str, ...]
    hook: bool | None
    url: str | None
    serve_v1beta1: bool
    ask: bool | None
    dry_run: bool
    force: bool
    output: Literal["text", "json"]


@click.command("init")
@click.argument(
    "folder",
    metavar="[FOLDER]",
    default=".",
    type=click.Path(file_okay=False, path_type=Path),
)
@click.option(
    "--policy",
    "names",
    multiple=True,
    metavar="NAME",
    help="A policy of the library; may be repeated.  [the default ones]",
)
@click.option(
    "--enforcement",
    type=click.Choice(_ENFORCEMENTS),
    help="How strictly the policies apply in clusters.  [Warn]",
)
@click.option(
    "--ci",
    multiple=True,
    type=click.Choice(["github", "gitlab", _NONE]),
    help="The CI that tests the policies; may be repeated.  [both]",
)
@click.option(
    "--gitops",
    multiple=True,
    type=click.Choice(["argocd", "flux", _NONE]),
    help="The tool that applies them; may be repeated.  [both]",
)
@click.option("--hook/--no-hook", default=None, help="A hook of pre-commit for commits.  [hook]")
@click.option("--url", help=f"The address of the repository, for GitOps.  [{SHOWN_URL}]")
@click.option(
    "--serve-v1beta1",
    is_flag=True,
    help="Serve v1beta1 of Kueue's kinds, too, and leave their definitions out of syncs.",
)
@click.option(
    "--ask/--no-ask",
    default=None,
    help="Ask for what no option says.  [if standard input is a terminal]",
)
@click.option("--dry-run", is_flag=True, help="List the files, and write none.")
@click.option("--force", is_flag=True, help="Overwrite files that are different.")
@TEXT_OR_JSON
def command(**given: Unpack[_Given]) -> None:
    r"""Create a repository of policies in FOLDER, by default here.

    It contains policies of the library with their test cases, a kustomization that applies them,
    workflows for GitHub Actions and GitLab that test them, a hook for commits, and manifests for
    Argo CD and Flux that install policyd's chart and the policies. These leave the fields out of
    the comparison that policyd writes itself.

    On a terminal, the command asks for what no option says. No file is overwritten without
    --force; if one is in the way, nothing is written. Files that are equal already stay.

    Exits with 0, or 2 if a file is in the way, a policy is unknown, or nothing can be written.

    \b
    Examples:
      policyd init policies-of-our-clusters
      policyd init --policy cap-gpus-per-pod --policy job-ttl --ci github --gitops argocd
      policyd init --no-ask --url https://git.example/team/policies.git --dry-run
    """
    wanted = _wanted(given)
    root = given["folder"]
    made = list(files_of(wanted))
    new = [(path, text) for path, text in made if not _is_equal(root / path, text)]
    if not given["force"]:
        _check_free(root, [path for path, _ in new])
    _check_inside(root, [path for path, _ in new])
    if not given["dry_run"]:
        _write(root, new)
    _show(given, [path for path, _ in made], [path for path, _ in new])


def _wanted(given: _Given) -> RepositoryOptions:
    known, default = folders(), [each.parent.name for each in default_files(shipped("policies"))]
    ask = sys.stdin.isatty() if given["ask"] is None else given["ask"]
    names = list(given["names"])
    if not names:
        names = _asked_names(default) if ask else default
    chosen = {folder.name: folder for folder in map(folder_of, dict.fromkeys(names))}
    assert chosen.keys() <= known.keys(), "the library has them"
    enforcement: str | None = given["enforcement"]
    if enforcement is None:
        choices = click.Choice(_ENFORCEMENTS, case_sensitive=False)
        question = f"Enforcement in clusters ({', '.join(_ENFORCEMENTS)})"
        enforcement = (
            click.prompt(question, "Warn", type=choices, show_choices=False, err=True)
            if ask
            else "Warn"
        )
    ci = _several("CI", given["ci"], ("github", "gitlab"), ask=ask)
    gitops = _several("GitOps", given["gitops"], ("argocd", "flux"), ask=ask)
    hook, url = given["hook"], given["url"]
    if hook is None:
        hook = click.confirm("A hook for commits", default=True, err=True) if ask else True
    if url is None:
        question = "Address of this repository"
        url = click.prompt(question, SHOWN_URL, err=True) if ask and gitops else SHOWN_URL
    return RepositoryOptions(
        policies=chosen,
        purposes={name: description_of(folder) for name, folder in chosen.items()},
        enforcement=cast("Enforcement", enforcement),
        ci=cast("tuple[Ci, ...]", ci),
        gitops=cast("tuple[GitOps, ...]", gitops),
        hook=hook,
        url=url,
        serves_v1beta1=given["serve_v1beta1"],
    )


def _asked_names(default: Sequence[str]) -> list[str]:
    question = "Policies, separated by commas (`policyd library list` describes them)"
    named: list[str] = click.prompt(question, ", ".join(default), err=True, value_proc=_names)
    return named


def _names(text: str) -> list[str]:
    """Return the names in an answer, which is asked for again if the library lacks one."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    try:
        for name in names:
            folder_of(name)
    except PolicydError as error:
        raise click.BadParameter(f"{error}; {error.hint}") from error
    return names


def _several(
    what: str, given: Sequence[str], choices: tuple[str, ...], *, ask: bool
) -> tuple[str, ...]:
    """Return the choices: those that are given or asked for, else all."""
    if given:
        if _NONE in given and len(set(given)) > 1:
            raise click.UsageError(f"--{what.lower()} {_NONE} excludes the others")
        return tuple(each for each in choices if each in given)
    if not ask:
        return choices
    return tuple(
        each for each in choices if click.confirm(f"{what}: {each}", default=True, err=True)
    )


def _is_equal(file: Path, text: bytes) -> bool:
    try:
        return file.is_file() and file.read_bytes() == text
    except OSError as error:
        raise PolicydError(f"cannot read {file}: {system_reason(error)}") from error


def _check_free(root: Path, paths: Iterable[str]) -> None:
    """Check that nothing is in the way.

    Raises:
        ConfigurationError: If something is.
    """
    taken = [path for path in paths if os.path.lexists(root / path)]
    if taken:
        more = f" and {count(len(taken) - 1, 'other file')}" if len(taken) > 1 else ""
        raise ConfigurationError(
            f"`{root / taken[0]}`{more} already exists with other content, and nothing was written",
            hint="use another folder, or --force to overwrite",
        )


def _check_inside(root: Path, paths: Iterable[str]) -> None:
    """Check that no link leads out of the folder.

    Raises:
        ConfigurationError: If one does.
    """
    top = root.resolve()
    for path in paths:
        file = root / path
        if not file.resolve().is_relative_to(top):
            raise ConfigurationError(f"`{file}` leads out of `{root}` by a link")
        if file.is_dir():
            raise ConfigurationError(f"`{file}` is a folder")


def _write(root: Path, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files, each whole or not at all; those that are new go again if one cannot be written.

    Raises:
        PolicydError: If one cannot be written.
    """
    written: list[Path] = []
    path = root
    try:
        for name, text in files:
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            new, part = not path.exists(), path.with_name(f".{path.name}.part")
            try:
                part.write_bytes(text)
                part.replace(path)
            finally:
                part.unlink(missing_ok=True)
            if new:
                written.append(path)
    except OSError as error:
        for file in written:
            file.unlink(missing_ok=True)
        raise PolicydError(f"cannot write {path}: {system_reason(error)}") from error


def _show(given: _Given, paths: Sequence[str], new: Sequence[str]) -> None:
    root, dry_run = given["folder"], given["dry_run"]
    if given["output"] == "json":
        answer = {"folder": str(root), "dryRun": dry_run, "files": paths, "written": new}
        click.echo(json.dumps(answer, indent=2))
    else:
        for path in new:
            click.echo(path)
    done = "would be written" if dry_run else "written"
    equal = f", {len(paths) - len(new)} are there already" if len(new) < len(paths) else ""
    click.echo(f"{count(len(new), 'file')} {done} to {root}{equal}", err=True)
