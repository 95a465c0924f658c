"""Generate the page that lists the policy library, from the policies themselves."""

from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from policyd.api.policy import Policy
from policyd.cli.bootstrap import default_policies
from policyd.engine.compile.load import load_policies

LIBRARY = Path(__file__).parents[1] / "policies"

Table = Callable[[str, Iterator[tuple[str, ...]]], str]


def library_page(table: Table) -> str:
    """Write the page, a table for each folder of the library."""
    default = {policy["metadata"]["name"] for policy in default_policies(LIBRARY)}
    folders = sorted(path for path in LIBRARY.iterdir() if path.is_dir())
    sections = "\n\n".join(
        f"## {folder.name}\n\n"
        + table("Policy | Purpose | Effect | Installed by default", _rows(folder, default))
        for folder in folders
        if [*folder.glob("*/policy.yaml")]
    )
    acting = [path for folder in folders for path in sorted(folder.glob("*/kyverno.yaml"))]
    return f"""\
# The policy library

Each policy is a folder with `policy.yaml`, its test cases, and a page that says when to use the
policy and what to adapt. [Choose and install policies](../../policies/README.md) applies to all of
them.

{sections}

## Policies that act by themselves

These are of Kyverno's kinds, in a file `kyverno.yaml`. `policyd background` acts on them, as far as
their annotation `policyd.io/rollout` says: [Generate and delete](../guides/generate-and-delete.md).

{table("Policy | Purpose | Effect", map(_acting_row, acting))}
"""


def _rows(folder: Path, default: set[str]) -> Iterator[tuple[str, ...]]:
    for path in sorted(folder.glob("*/policy.yaml")):
        [compiled] = load_policies(path.read_bytes(), path.parent.name).policies
        policy = compiled.policy
        link = f"../../policies/{folder.name}/{path.parent.name}/README.md"
        yield (
            f"[`{policy.metadata.name}`]({link})",
            policy.spec.description,
            _how(policy),
            "yes" if policy.metadata.name in default else "",
        )


def _acting_row(path: Path) -> tuple[str, ...]:
    policy = yaml.safe_load(path.read_text())
    metadata = policy["metadata"]
    link = f"../../policies/{path.parent.relative_to(LIBRARY).as_posix()}/README.md"
    purpose = metadata["annotations"]["policies.kyverno.io/description"]
    effect = "generates" if policy["kind"] == "GeneratingPolicy" else "deletes"
    return f"[`{metadata['name']}`]({link})", purpose, effect


def _how(policy: Policy) -> str:
    sets = policy.spec.inject is not None or bool(policy.spec.mutations)
    deeds = ["sets"] * sets + ["refuses"] * bool(policy.spec.validations)
    return ", ".join(deeds)
