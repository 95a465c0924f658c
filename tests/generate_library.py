"""Generate the page that lists the policy library, from the policies themselves."""

from collections.abc import Callable, Iterator
from pathlib import Path

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
    )
    return f"""\
# The policy library

Each policy is a folder with `policy.yaml`, its test cases, and a page that says when to use the
policy and what to adapt. [Choose and install policies](../../policies/README.md) applies to all of
them.

{sections}
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


def _how(policy: Policy) -> str:
    sets = policy.spec.inject is not None or bool(policy.spec.mutations)
    deeds = ["sets"] * sets + ["refuses"] * bool(policy.spec.validations)
    return ", ".join(deeds)
