"""`policyd library`: the policies that come with policyd, where there is no checkout of it."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import click

from policyd.cli.bootstrap import shipped
from policyd.cli.formats.files import content
from policyd.cli.formats.report import count
from policyd.cli.formats.tables import show_table
from policyd.cli.options import TEXT_OR_JSON
from policyd.engine.documents.reading import read_documents
from policyd.engine.objects.workloads import value_at
from policyd.errors import ConfigurationError, PolicydError, did_you_mean
from policyd.policy_files import default_files

_POLICY = "policy.yaml"


class LibraryError(PolicydError):
    """The library has no such policy."""


@click.group("library")
def command() -> None:
    """List, show and copy the policies that come with policyd."""


@command.command("list")
@TEXT_OR_JSON
def list_command(output: Literal["text", "json"]) -> None:
    r"""List the policies with their purpose.

    Those that `policyd up` and the chart install by default are marked.

    \b
    Examples:
      policyd library list
      policyd library list -o json | jq '.[].name'
    """
    default = {file.parent for file in default_files(shipped("policies"))}
    described = {name: (folder, description_of(folder)) for name, folder in folders().items()}
    if output == "json":
        listed = [
            {
                "name": name,
                "category": folder.parent.name,
                "description": description,
                "default": folder in default,
            }
            for name, (folder, description) in described.items()
        ]
        click.echo(json.dumps(listed, indent=2))
        return
    rows = [
        (name, folder.parent.name, "yes" if folder in default else "", description)
        for name, (folder, description) in described.items()
    ]
    show_table(("NAME", "CATEGORY", "DEFAULT", "PURPOSE"), rows)


@command.command("show")
@click.argument("name", shell_complete=lambda _context, _argument, begun: _begun(begun))
def show_command(name: str) -> None:
    r"""Print the policy of that name.

    \b
    Examples:
      policyd library show cap-gpus-per-pod
      policyd library show cap-gpus-per-pod | kubectl apply -f -
    """
    text = content(folder_of(name) / _POLICY).decode()
    click.echo(text, nl=False)


@command.command("copy")
@click.argument(
    "names",
    nargs=-1,
    required=True,
    metavar="NAME…",
    shell_complete=lambda _context, _argument, begun: _begun(begun),
)
@click.option(
    "--to",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("policies"),
    show_default=True,
    help="The folder to copy into.",
)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
def copy_command(names: tuple[str, ...], to: Path, *, force: bool) -> None:
    r"""Copy policies with their cases, to change them and to test them in CI.

    \b
    Examples:
      policyd library copy cap-gpus-per-pod max-run-time
      policyd library copy cap-gpus-per-pod --to my-policies && policyd test my-policies
    """
    folders = [folder_of(name) for name in names]
    for folder in folders:
        target = to / folder.name
        if target.exists() and not force:
            raise ConfigurationError(
                f"`{target}` already exists", hint="copy to another folder, or use --force"
            )
    for folder in folders:
        shutil.copytree(folder, to / folder.name, dirs_exist_ok=True)
    click.echo(f"{count(len(folders), 'policy')} copied to {to}", err=True)
    kustomization = to / "kustomization.yaml"
    if kustomization.is_file():
        applied = kustomization.read_text(errors="replace")
        for folder in folders:
            if f"{folder.name}/{_POLICY}" not in applied:
                text = f"hint: name {folder.name}/{_POLICY} in {kustomization}, which applies it"
                click.secho(text, fg="cyan", err=True)


def folders() -> Mapping[str, Path]:
    """Return the folder of each policy, by name."""
    found = sorted(file.parent for file in shipped("policies").glob(f"*/*/{_POLICY}"))
    return {folder.name: folder for folder in sorted(found, key=lambda each: each.name)}


def folder_of(name: str) -> Path:
    """Return the folder of a policy, named with its category or without.

    Raises:
        LibraryError: If there is none.
    """
    known = folders()
    folder = known.get(name.rpartition("/")[2])
    if folder is None or not str(folder).endswith(f"/{name}"):
        hint = did_you_mean(name, known) or "`policyd library list` lists them"
        raise LibraryError(f"the library has no policy `{name}`", hint=hint)
    return folder


def _begun(begun: str) -> list[str]:
    return [name for name in folders() if name.startswith(begun)]


def description_of(folder: Path) -> str:
    """Return what the policy in a folder is for."""
    file = folder / _POLICY
    (document,), _ = read_documents(content(file), str(file))
    return str(value_at(document.value, ("spec", "description")) or "")
