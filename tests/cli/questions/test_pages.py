"""Answers that are printed again when they have changed, and the end of that."""

import asyncio
import json

import click
import pytest
import yaml

from policyd.cli.questions.pages import Page, unless_stopped, watch
from policyd.kube.errors import ForbiddenError, UnreachableError

pytestmark = pytest.mark.anyio


class PreparedAnswers:
    """Gives prepared answers, errors among them; then it is the end."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def __call__(self):
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def watched(output, *answers):
    page = Page(output, lambda found: [f"{n} waits" for n in found], "nothing waits")
    with pytest.raises(asyncio.CancelledError):
        await watch(page, PreparedAnswers(*answers), seconds=0)


async def test_an_answer_is_printed_again_when_it_has_changed(capsys):
    await watched("table", [1], [1], [1, 2], [1, 2])

    assert capsys.readouterr().out == "1 waits\n\n1 waits\n2 waits\n"


async def test_programs_get_one_document_after_another(capsys):
    await watched("json", [1], [1], [2])
    text = capsys.readouterr().out
    first, end = json.JSONDecoder().raw_decode(text)
    assert (first, json.loads(text[end:])) == ([1], [2])

    await watched("yaml", [1], [2])
    assert list(yaml.safe_load_all(capsys.readouterr().out)) == [[1], [2]]


async def test_an_answer_with_nothing_in_it_is_distinguished_from_the_data(capsys):
    await watched("table", [], [1])

    assert capsys.readouterr() == ("\n1 waits\n", "nothing waits\n")


async def test_an_api_server_that_is_away_for_a_while_is_asked_again(capsys):
    await watched("table", [1], UnreachableError("cannot connect"), [2])

    assert capsys.readouterr() == (
        "1 waits\n\n2 waits\n",
        "warning: cannot connect; asking again\n",
    )


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param([UnreachableError("no")], id="away-from-the-start"),
        pytest.param([[1], ForbiddenError("no")], id="no-rights-any-more"),
    ],
)
async def test_an_error_that_will_not_pass_ends_it(answers):
    page = Page("table", str)

    with pytest.raises((UnreachableError, ForbiddenError)):
        await watch(page, PreparedAnswers(*answers), seconds=0)


async def test_on_a_terminal_the_answer_stays_in_its_place(capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    await watched("table", [1], [2])

    shown = capsys.readouterr().out
    assert "1 waits" in shown
    assert "\x1b[2K" in shown, "the line before is wiped out"
    assert shown.index("\x1b[2K") < shown.index("2 waits")


async def test_an_interruption_ends_with_the_exit_code_of_one():
    stop, page = asyncio.Event(), Page("table", str)

    async def again():
        stop.set()
        return "x"

    work = asyncio.create_task(watch(page, again))
    with pytest.raises(click.Abort):
        await unless_stopped(work, stop)
    assert work.cancelled()


async def test_work_that_ends_by_itself_gives_its_error():
    async def fails():
        raise UnreachableError("cannot connect")

    with pytest.raises(UnreachableError):
        await unless_stopped(asyncio.create_task(fails()), asyncio.Event())
