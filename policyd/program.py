"""A command line as a process: its end, and the colours of its output.

One exit code for each kind of end: 0 success, 1 findings, 2 unusable input, 130 interrupted.
"""

import gc
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NoReturn, TextIO

import click

from policyd.errors import PolicydError, system_reason
from policyd.terminal import visible_controls


def _import_structlog() -> None:
    """Import structlog without rich, which it needs only for tracebacks that are not printed here.

    It saves each process 6 MB and a twentieth of a second.
    """
    if not {"rich", "structlog"} & {*sys.modules}:
        sys.modules["rich"] = None  # type: ignore[assignment]
        try:
            importlib.import_module("structlog")
        finally:
            del sys.modules["rich"]


_import_structlog()  # before the modules that import it

FINDINGS: Final = 1
"""The exit code of a command that found mistakes in its input."""

USAGE: Final = 2
"""The exit code of a process with wrong options, or unusable input."""

INTERRUPTED: Final = 130
"""The exit code of a process that was not given the time to end well."""


@contextmanager
def in_words() -> Iterator[None]:
    """Print errors that the user can fix as sentences, and end with exit code 2."""
    try:
        yield
    except PolicydError as error:
        _end([error])
    except BaseExceptionGroup as group:
        errors, others = group.split(PolicydError)
        if errors is None or others is not None:
            raise
        _end(_flat(errors))


GARBAGE: Final = 10_000
"""Containers that may be made, less those that are gone, before garbage is looked for: a review of
a large object holds some thousands and leaves none behind, as a reconciliation does, so that
a collection of them finds nothing. Garbage takes a few megabytes by then."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave objects that are made here out of garbage collections, as they are never freed.

    A collection would go through all of them again and again: a third of the time of reading many
    objects, and a tenth of a second of the imports of a service.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE)
        gc.enable()


def _end(errors: Iterable[PolicydError]) -> NoReturn:
    for error in errors:
        click.secho(f"error: {error}", fg="red", err=True)
        if error.hint:
            click.secho(f"hint: {error.hint}", fg="cyan", err=True)
    sys.exit(USAGE)


def _flat(errors: BaseExceptionGroup[PolicydError]) -> list[PolicydError]:
    flat: list[PolicydError] = []
    for error in errors.exceptions:
        flat += _flat(error) if isinstance(error, BaseExceptionGroup) else [error]
    return flat


class CommandProcess(click.Command):
    """A command as a process: an early end has a message, and an exit code.

    2 is for unusable input, and 130 for an interruption.
    """

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as click has it
        super().__init__(*args, **options)
        with_color(self)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as click has it
        """Run, and print errors while it is known whether they have colours."""
        with in_words():
            return super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run, and end the process unless `standalone_mode` is off."""
        run = partial(super().main, args, prog_name, complete_var, standalone_mode=False, **extra)
        if not standalone_mode:
            return run()
        with visible_controls(), in_words():
            try:
                code: object = run()
            except click.ClickException as error:
                error.show()
                sys.exit(USAGE)
            except click.Abort:
                sys.exit(INTERRUPTED)
            except OSError as error:
                file = "" if error.filename is None else f" `{error.filename}`"
                raise PolicydError(f"cannot use{file}: {system_reason(error)}") from error
        sys.exit(code if isinstance(code, int) else 0)


def with_color(command: click.Command) -> None:
    """Give a command the options that say when its output has colours."""
    if any(parameter.name == "color" for parameter in command.params):
        return
    command.params += [
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            expose_value=False,
            is_eager=True,
            callback=_choose_color,
            help="When to use colours; auto: on a terminal, unless NO_COLOR is set.",
        ),
        _AnyText(
            ["--no-color"],
            envvar="NO_COLOR",
            is_flag=True,
            flag_value="set",
            hidden=True,
            expose_value=False,
            callback=_leave_colors_out,
        ),
    ]


class _AnyText(click.Option):
    """A flag that a variable of the environment sets by any text in it."""

    def value_from_envvar(self, ctx: click.Context) -> str | None:
        """Return the flag's value if there is a text."""
        return "set" if self.resolve_envvar_value(ctx) else None


def _choose_color(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    if value is not None:
        # Errors are printed by the outermost command.
        color = {"always": True, "never": False}.get(value)
        context.color = context.find_root().color = color


def _leave_colors_out(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    """Leave colours out, unless they were asked for: any text in NO_COLOR will do."""
    if value and context.color is None:
        context.color = context.find_root().color = False


def has_color(stream: TextIO) -> bool:
    """Tell whether output to a stream has colours."""
    context = click.get_current_context(silent=True)
    chosen = None if context is None else context.color
    return stream.isatty() if chosen is None else chosen
