"""The commands: data to stdout, talk to stderr, and the exit codes of all programs of policyd.

A command's module is imported when the command is called, so that `policyd --version` does not wait
for modules that only the controller needs.

The commands that run programs or print files are here; folders have the others by subject.

Imports every folder of `policyd`, and the server of `webhooks`. Start with `policies`, which names
a typical command.
"""

import sys
from collections.abc import Mapping
from contextlib import nullcontext
from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from policyd import __version__
from policyd.errors import did_you_mean
from policyd.program import CommandProcess, uncollected, with_color

_Commands = Mapping[str, tuple[str, str]]
_OF_POLICIES: Final[_Commands] = {
    "up": ("policyd.cli.up:command", "Start policyd on an embedded cluster."),
    "check": ("policyd.cli.policies.check:command", "Check policies and report every error."),
    "apply": ("policyd.cli.policies.apply:command", "Show the effect of policies on objects."),
    "explain": (
        "policyd.cli.policies.explain:command",
        "Explain the decisions of policies on objects.",
    ),
    "test": ("policyd.cli.policies.test:command", "Run the cases next to policies."),
    "replay": (
        "policyd.cli.policies.replay:command",
        "Show what would differ under changed policies.",
    ),
    "report": (
        "policyd.cli.policies.policy_reports:command",
        "Report the results of policies for existing objects.",
    ),
    "cel": ("policyd.cli.policies.cel:command", "Evaluate CEL expressions as in policies."),
    "prove": ("policyd.cli.prove.command:command", "Prove what policies mean, by a solver."),
}
_OF_QUEUES: Final[_Commands] = {
    "why": ("policyd.cli.questions.why:command", "Explain why a job is pending."),
    "job": ("policyd.cli.questions.job:command", "Show all details of a job."),
    "queue": ("policyd.cli.questions.queue:command", "List the pending workloads of queues."),
    "quota": ("policyd.cli.questions.quota:command", "Show the quotas of queues and their use."),
    "nodes": ("policyd.cli.questions.nodes:command", "Show nodes, pods and stranded devices."),
    "priority": (
        "policyd.cli.questions.priority:command",
        "Show the position of each pending workload, and the reason for it.",
    ),
    "history": (
        "policyd.cli.questions.history:command",
        "List past and running jobs, their times, nodes and preemptors.",
    ),
    "top": ("policyd.cli.questions.top:command", "Show the load of queues."),
    "events": ("policyd.cli.questions.events:command", "Show the events of queues."),
    "dashboard": (
        "policyd.cli.questions.dashboard:command",
        "Show queues, nodes and jobs in a browser.",
    ),
    "stop": ("policyd.cli.operating.stopping:stop", "Stop queues, or the workloads of jobs."),
    "resume": ("policyd.cli.operating.stopping:resume", "Resume what was stopped."),
    "import": (
        "policyd.cli.importing.command:command",
        "Bring running jobs and pods under queues.",
    ),
    "doctor": ("policyd.cli.doctor.command:command", "Find what is wrong with an installation."),
    "what-if": (
        "policyd.cli.questions.what_if:command",
        "Show the effect of a change on the starts of jobs, and preemptions.",
    ),
    "usage": (
        "policyd.cli.usage.command:command",
        "Show the use of GPUs: idle ones, fragments, hours and costs.",
    ),
    "simulate": ("policyd.cli.planning.simulate:command", "Simulate the decisions of the queue."),
}
_OTHERS: Final[_Commands] = {
    "devices": ("policyd.cli.devices:command", "Show which GPUs nodes have, whole and in parts."),
    "export": (
        "policyd.cli.policies.export:command",
        "Write policies in the API server's own kinds.",
    ),
    "convert": ("policyd.cli.convert:command", "Write Kueue's v1beta1 objects as v1beta2."),
    "library": (
        "policyd.cli.policies.library:command",
        "List, show and copy the policies of the library.",
    ),
    "init": ("policyd.cli.starting.command:command", "Create a repository of policies."),
    "schema": (
        "policyd.cli.policies.schema:command",
        "Print the JSON schema of policies, for editors.",
    ),
    "migrate": (
        "policyd.cli.migrate.command:command",
        "Bring policies and queues over from other tools.",
    ),
    "background": (
        "policyd.cli.background.command:command",
        "Generate, mutate and delete objects as Kyverno's policies say.",
    ),
    "takeover": (
        "policyd.cli.takeover.command:command",
        "Take the queues of a running cluster over from Kueue, and give them back.",
    ),
    "controller": ("policyd.cli.controller:command", "Run the queue on a cluster."),
    "release": ("policyd.cli.releasing:command", "Remove the queue's finalizers from pods."),
    "crds": ("policyd.cli.crds:command", "Print the CustomResourceDefinitions."),
    "completion": ("policyd.cli.completion:command", "Print a shell's completion script."),
}
COMMANDS: Final[_Commands] = {**_OF_POLICIES, **_OF_QUEUES, **_OTHERS}
"""Every command: where it is, as `module:attribute`, and its line in `policyd --help`."""


class _LazyGroup(CommandProcess, click.Group):
    """A group that knows its commands by name, and imports the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        with nullcontext() if module in sys.modules else uncollected():
            command: click.Command = getattr(import_module(module), attribute)
        # click keeps the lines of a paragraph behind a backspace; docstrings are raw, and spell it.
        for each in (command, *getattr(command, "commands", {}).values()):
            each.help = (each.help or "").replace("\\b\n", "\b\n")
            with_color(each)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is called, or say which may be meant."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = did_you_mean(args[0], COMMANDS)
            ctx.fail(f"no such command `{args[0]}`{f': {near}' if near else ''}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the commands' names without importing them: a key press is waiting."""
        names = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="policyd")
def main() -> None:
    """Policies and queues for GPU clusters."""
