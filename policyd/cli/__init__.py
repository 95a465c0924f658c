"""The commands: data to stdout, talk to stderr; exit codes 0 fine, 1 findings, 2 usage."""

import click

from policyd import __version__


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="policyd")
def main() -> None:
    """Policies and queues for GPU clusters."""
