"""`policyd completion`: print a shell script that completes commands, options and files."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "policyd"
VARIABLE = "_POLICYD_COMPLETE"
"""How the script asks policyd for completions; click derives it from the program's name."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    r"""Print the script that makes SHELL complete policyd's commands and options.

    To try it in this terminal: `source <(policyd completion bash)`. Bash must be 4.4 or newer.
    Completion asks the policyd that is on the PATH.

    \b
    To install it for bash:
      policyd completion bash > ~/.local/share/bash-completion/completions/policyd

    \b
    For zsh, with the second line below compinit in ~/.zshrc:
      policyd completion zsh > ~/.policyd-completion.zsh
      source ~/.policyd-completion.zsh

    \b
    For fish:
      policyd completion fish > ~/.config/fish/completions/policyd.fish
    """
    made_by = get_completion_class(shell)
    assert made_by is not None, "click knows the shells that the argument takes"
    script = made_by(ctx.find_root().command, {}, PROGRAM, VARIABLE)
    click.echo(script.source())
