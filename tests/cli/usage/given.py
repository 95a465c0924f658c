"""How tests call `policyd usage` on recorded series."""

from click.testing import CliRunner

from policyd.cli import main

UNTIL = ("--since", "2026-11-02T00:00:00Z", "--until", "2026-11-02T06:00:00Z", "--step", "300")


def usage(name, address, *arguments):
    command = ["usage", name, "--prometheus", address, *UNTIL, *map(str, arguments)]
    return CliRunner().invoke(main, command)
