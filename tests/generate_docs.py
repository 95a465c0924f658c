"""Write the reference pages from the code: `python -m tests.generate_docs`.

The description of a field is the string below it, or else the docstring of its type.
"""

import re
import types
import typing
from collections.abc import Iterator
from dataclasses import fields as dataclass_fields
from datetime import datetime
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import msgspec
from click.testing import CliRunner
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from policyd.api.configuration.fixed_gates import LEFT_OUT
from policyd.api.configuration.gates import DEFAULTS
from policyd.api.inject import Expression
from policyd.api.meta import ObjectMeta
from policyd.api.policy import Policy
from policyd.cel.types import Type
from policyd.cli import COMMANDS, main
from policyd.cli.background.watching import BackgroundMetrics
from policyd.config import PREFIX, Settings
from policyd.controller.metrics.metric_families import COUNTED, MEASURED
from policyd.controller.metrics.series_bounds import SeriesBounds
from policyd.controller.policies.scanning import ScanMetrics
from policyd.engine.compile.schema import policy_shape
from policyd.engine.model.queue_facts import QUEUE_FACTS, QUEUE_VARIABLES
from policyd.field_descriptions import field_descriptions
from tests.gates import flipped
from tests.generate_cel import functions_page
from tests.generate_errors import errors_page
from tests.generate_library import library_page
from tests.generate_versions import versions_page
from webhooks.__main__ import main as webhooks_main
from webhooks.metrics import MOST_POLICIES, WebhookMetrics

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "<!-- Generated from the code by `python -m tests.generate_docs`. Do not edit. -->\n"
SCALARS = {str: "string", int: "integer", bool: "true or false", datetime: "timestamp"}


def documents() -> dict[str, str]:
    """The text of each page, by name."""
    pages = {
        "policy.md": policy_page(),
        "cli.md": cli_page(),
        "settings.md": settings_page(),
        "feature-gates.md": gates_page(),
        "kueue-versions.md": versions_page(table),
        "metrics.md": metrics_page(),
        "cel-functions.md": functions_page(table),
        "policy-library.md": library_page(table),
        "errors.md": errors_page(table),
    }
    return {name: MADE + text for name, text in pages.items()}


# Fields and their descriptions


def one_line(text: str) -> str:
    return " ".join(text.split())


def table(header: str, rows: Iterator[tuple[str, ...]]) -> str:
    columns = header.split(" | ")
    lines = [f"| {header} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)


# policy.md


def policy_page() -> str:
    sections = "\n\n".join(struct_section(struct) for struct in structs(Policy))
    facts = "\n\n".join(fact_sections())
    return f"""\
# Policy

`policyd.io/v1alpha1`, kind `Policy`, short name `pdpol`, not namespaced.
[Write a policy](../guides/write-a-policy.md) is an introduction, and
[Policies](../concepts/policies.md) describes how policies work together.
`policyd schema` prints this reference as a JSON schema for editors.

If a field accepts a plain type *or* an [Expression](#expression), write a value, or
`{{expression: …}}` to compute the value by CEL.
If a computed value is null, the field is not set.
Fields that Kubernetes' own objects have too (tolerations, affinity, selectors) have the same
meaning as there.

{sections}

## Facts of queues

{FACTS}

{facts}
"""


FACTS = """\
The variables `queue`, `clusterQueue` and `cluster` of expressions:
[Read the queues](../guides/read-the-queues.md) describes them.
Amounts are whole devices, milli-CPU (`1000` is one CPU) and bytes; without a limit, they are
`9223372036854775807`.\
"""


def fact_sections() -> Iterator[str]:
    """Yield a table for each type that the facts of queues are made of."""
    named = {str(kind): name for name, kind in QUEUE_VARIABLES.items()}
    for struct, fields in QUEUE_FACTS.items():
        title = f"### {struct.removeprefix('policyd.')}"
        rows = ((f"`{name}`", fact_type(kind), note) for name, (kind, note) in fields.items())
        called = f"`{named[struct]}`\n\n" if struct in named else ""
        yield f"{title}\n\n{called}" + table("Field | Type | Meaning", rows)


def fact_type(kind: Type) -> str:
    """Write a type of CEL, with a link if there is a table for it."""
    if kind.name in QUEUE_FACTS:
        name = kind.name.removeprefix("policyd.")
        return f"[{name}](#{name.lower()})"
    inner = ", ".join(map(fact_type, kind.parameters))
    return f"{str(kind).partition('(')[0]}({inner})" if inner else str(kind)


def structs(root: type) -> list[type]:
    """Return the Structs that a Struct leads to, itself first, in the order of reading."""
    found: list[type] = []

    def visit(hint: Any) -> None:
        if is_struct(hint):
            if hint in found or hint is ObjectMeta:
                return
            found.append(hint)
            for inner in hints(hint).values():
                visit(inner)
        for inner in typing.get_args(hint):
            visit(inner)

    visit(root)
    return found


def is_struct(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def hints(struct: type) -> dict[str, Any]:
    return typing.get_type_hints(struct, include_extras=True)


def struct_section(struct: type) -> str:
    summary = re.sub(r"`\w+_\w+`", camel, dedent(f"    {struct.__doc__}").strip())
    return f"## {struct.__name__}\n\n{summary}\n\n" + table(
        "Field | Type | Default | Meaning", struct_rows(struct)
    )


def camel(name: re.Match[str]) -> str:
    return re.sub(r"_(\w)", lambda letter: letter[1].upper(), name[0])


def struct_rows(struct: type) -> Iterator[tuple[str, ...]]:
    annotated, notes = hints(struct), field_descriptions(struct)
    required = policy_shape().schema["$defs"][struct.__name__].get("required", ())
    for field in msgspec.structs.fields(struct):
        hint, name = annotated[field.name], field.encode_name
        default = "required" if name in required else default_text(field.default)
        yield f"`{name}`", type_text(hint), default, notes.get(field.name) or summary_of(hint)


def summary_of(hint: Any) -> str:
    """Return the first sentence on the Struct that a field holds; a value needs none."""
    if is_struct(hint):
        return "" if hint is Expression else one_line(hint.__doc__).split(". ")[0].rstrip(".") + "."
    return next(filter(None, map(summary_of, typing.get_args(hint))), "")


def type_text(hint: Any) -> str:
    """Write a type as a reader of YAML knows it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in GENERIC:
        return GENERIC[origin](arguments)
    if hint is ObjectMeta:
        return "as in every object"
    if is_struct(hint):
        return f"[{hint.__name__}](#{hint.__name__.lower()})"
    return SCALARS[hint]


def union_text(members: tuple[Any, ...]) -> str:
    return " or ".join(type_text(member) for member in members if member is not types.NoneType)


def literal_text(values: tuple[str, ...]) -> str:
    shown = [f"`{value}`" for value in values if value]
    return " or ".join(shown) if len(shown) < 3 else f"one of {', '.join(shown)}"


def element_text(hint: Any) -> str:
    text = type_text(hint)
    return f"({text})" if " or " in text else text


GENERIC = {
    typing.Annotated: lambda arguments: type_text(arguments[0]),
    types.UnionType: union_text,
    typing.Union: union_text,
    typing.Literal: literal_text,
    tuple: lambda arguments: f"list of {element_text(arguments[0])}",
    dict: lambda arguments: f"map of string to {element_text(arguments[1])}",
}


def default_text(default: Any) -> str:
    if isinstance(default, msgspec.Struct):
        default = msgspec.to_builtins(default)
    if default in (None, "", (), {}, msgspec.NODEFAULT):
        return "none"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


# cli.md


def cli_page() -> str:
    commands = "\n".join(
        command_section(("policyd", *words), main, list(words)) for words in command_names()
    )
    return f"""\
# Command line

`policyd` has the commands for people and pipelines; `policyd-webhooks` is the admission server.
Commands write data to standard output and messages to standard error.
A file can be `-` for standard input.
Exit codes: 0 for success, 1 for findings, 2 for wrong usage or unusable input, 130 after Ctrl-C.

{command_section(("policyd",), main, [])}
{commands}
{command_section(("policyd-webhooks",), webhooks_main, [])}\
"""


def command_names() -> Iterator[tuple[str, ...]]:
    """Every command, and the commands of those that are groups."""
    context = click.Context(main)
    for name in COMMANDS:
        yield (name,)
        command = main.get_command(context, name)
        if isinstance(command, click.Group):
            yield from ((name, each) for each in command.commands)


def command_section(words: tuple[str, ...], command: click.Command, arguments: list[str]) -> str:
    runner = CliRunner()
    shown = runner.invoke(
        command, [*arguments, "--help"], prog_name=words[0], terminal_width=100, color=False
    )
    assert shown.exit_code == 0, shown.output
    return f"## {' '.join(words)}\n\n```text\n{shown.stdout.rstrip()}\n```\n"


# settings.md


def settings_page() -> str:
    return f"""\
# Settings

Each setting of `policyd-webhooks` is a flag and an environment variable.
A flag takes precedence over its variable, and the variable over the default.
An unknown variable that begins with `{PREFIX}` is an error, so that typing errors are detected.

{table("Flag | Variable | Default | Meaning", settings_rows())}
"""


def settings_rows() -> Iterator[tuple[str, ...]]:
    notes = field_descriptions(Settings)
    flags = {parameter.name: parameter for parameter in webhooks_main.params}
    for field in dataclass_fields(Settings):
        flag = flags.get(field.name)
        shown = f"`{max(flag.opts, key=len)}`" if flag else "—"
        default = default_text(field.default)
        yield shown, f"`{PREFIX}{field.name.upper()}`", default, notes[field.name]


# feature-gates.md


def gates_page() -> str:
    return f"""\
# Feature gates

policyd has Kueue's feature gates, with the same names and meaning.
Their defaults are those of Kueue 0.20, also where 0.19 has another:
[Versions of Kueue](kueue-versions.md) has the history of each gate.
The gates in the first table have no effect: policyd behaves as the column *Here* says, and warns if
a Configuration, or `--feature-gates`, sets a different value.

{table("Gate | Default in Kueue | Here | Why", left_out_rows())}

All other gates have the same effect as in Kueue, each verified by a test that flips it:

{table("Gate | Default | Flipped by", flipped_rows())}
"""


def flipped_rows() -> Iterator[tuple[str, ...]]:
    words = {True: "on", False: "off"}
    for name, tests in sorted(flipped().items()):
        sentences = (test.removeprefix("test_").replace("_", " ") for test in dict.fromkeys(tests))
        yield f"`{name}`", words[DEFAULTS[name]], "; ".join(sentences)


def left_out_rows() -> Iterator[tuple[str, ...]]:
    words = {True: "on", False: "off"}
    for name, left_out in LEFT_OUT.items():
        yield f"`{name}`", words[DEFAULTS[name]], words[left_out.on], left_out.reason


# metrics.md


BOUNDS = SeriesBounds()


def metrics_page() -> str:
    reviews = WebhookMetrics(CollectorRegistry())
    scans = ScanMetrics(CollectorRegistry())
    background = BackgroundMetrics()
    return f"""\
# Metrics

The webhooks and the controller serve metrics at `/metrics`, in OpenMetrics for callers that prefer
it, else in the older Prometheus format. There are no exemplars.
[Monitor policyd](../guides/monitor.md) has dashboards and alerts for them.

## How many series there are

The values of labels are taken from closed sets and from the names of queues, cohorts, flavors and
resources, so that the number of series does not grow with pods or workloads.
Users of a namespace choose the names of LocalQueues, and resources that pods request. So each label
has a number of values, and those that came first keep their series until their object is deleted:

| Series of their own have | At most | Option of `policyd controller` |
|---|---|---|
| LocalQueues; namespaces with use outside of quota | {BOUNDS.local_queues} | `--metric-queues` |
| LocalQueues of one namespace | {BOUNDS.of_namespace:,} | `--metric-queues-of-namespace` |
| ClusterQueues, and as many Cohorts | {BOUNDS.cluster_queues:,} | `--metric-queues` |
| values of each other label; resources with quota first | {BOUNDS.values:,} | |
| series of one metric that counts; a histogram is one | {BOUNDS.series:,} | |

The rest is summed up under the value `_other_`, which is the name of no object. Where a sum has no
meaning, as with fair shares or amounts of different resources, it is left out.
The label `priority_class` is `_other_` for a class that does not exist.
If all bounds are reached in all metrics, a process takes about 60 MiB for them.
A text is served again for ten times as long as it took to make, however often it is requested.

## policyd-webhooks

{table("Metric | Type | Labels | Meaning", metric_rows(reviews))}

The first {MOST_POLICIES} policies that reviews name have series of their own in
`policyd_policy_results_total`, until the process ends. The others share the value `_other_`.

## policyd controller

The metrics are served with `--health-port`; those of scans and reports also require `--reports`.

Metrics that begin with `kueue_` have the names and labels of Kueue, so that its dashboards and
alerts work unchanged.
Their label `replica_role` is `leader` or `follower`, or `standalone` without leader election; only
the leader counts events.
The metrics of a ClusterQueue's quota require `metrics.enableClusterQueueResources` in
[Kueue's Configuration](../guides/configure-the-queue.md). LocalQueues have metrics unless
`metrics.localQueueMetrics` excludes them.
The series of a queue end when it is deleted.
With the gate `CustomMetricLabels`, the labels of `metrics.customLabels` are added, as
`custom_NAME`, to the metrics of ClusterQueues, LocalQueues, Cohorts and workloads.

{table("Metric | Type | Labels | Meaning", [*family_rows(), *metric_rows(scans)])}

## policyd background

The metrics are served with `--watch` and `--health-port`.

{table("Metric | Type | Labels | Meaning", metric_rows(background))}
"""


def family_rows() -> Iterator[tuple[str, ...]]:
    for family in (*COUNTED, *MEASURED):
        labels = ", ".join(f"`{label}`" for label in family.labels) or "none"
        yield f"`{family.name}`", family.kind, labels, f"{family.text}."


def metric_rows(owner: object) -> Iterator[tuple[str, ...]]:
    kinds = {Counter: "counter", Gauge: "gauge", Histogram: "histogram"}
    for metric in vars(owner).values():
        if isinstance(metric, MetricWrapperBase):
            described = metric.describe()[0]
            total = "_total" if isinstance(metric, Counter) else ""
            labels = ", ".join(f"`{label}`" for label in metric._labelnames) or "none"
            text = re.sub(r"(?<!\.)$", ".", described.documentation)
            yield f"`{described.name}{total}`", kinds[type(metric)], labels, text


def write() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in documents().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    write()
