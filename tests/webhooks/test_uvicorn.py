"""What is relied on of uvicorn's insides, as it is installed: it may change with any release."""

import asyncio
import inspect
import re

import httptools
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import Server, ServerState

from policyd.serving import server_config
from webhooks.protocol import DirectCall, ReviewProtocol

pytestmark = pytest.mark.anyio

OVERRIDDEN = ("data_received", "connection_lost", "on_headers_complete", "on_body")
CALLED = (
    "resume_writing",
    "on_message_complete",
    "on_response_complete",
    "connection_made",
    "shutdown",
    "timeout_keep_alive_handler",
    "_unset_keepalive_if_required",
)
KEPT = {"app", "cycle", "expect_100_continue", "flow", "headers", "loop", "parser", "tasks"}
KEPT |= {"transport", "url", "pipeline", "server_state"}
KEPT |= {"timeout_keep_alive", "timeout_keep_alive_task"}


async def nothing(_scope, _receive, _send):
    """Answer nothing."""


def protocol(kind=HttpToolsProtocol):
    config = server_config(nothing, grace_seconds=1)
    config.load()
    return kind(config=config, server_state=ServerState(), app_state={}, _loop=None)


def parameters(function):
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("name", [*OVERRIDDEN, *CALLED])
def test_the_methods_are_there_with_what_they_are_given(name):
    ours, theirs = getattr(ReviewProtocol, name), getattr(HttpToolsProtocol, name)

    assert parameters(ours) == parameters(theirs)
    assert not inspect.iscoroutinefunction(theirs)


async def test_a_protocol_is_made_by_these_names_and_keeps_these():
    assert vars(protocol()).keys() >= KEPT - {"url"}
    made = protocol()
    made.on_message_begin()
    assert (made.url, made.headers, made.expect_100_continue) == (b"", [], False)


async def test_the_parser_is_the_one_whose_questions_are_asked():
    parser = protocol().parser

    assert isinstance(parser, httptools.HttpRequestParser)
    for name in ("get_method", "get_http_version", "should_keep_alive", "should_upgrade"):
        assert callable(getattr(parser, name))


async def test_a_call_in_flight_is_asked_for_no_more_than_ours_has():
    """Whatever the protocol asks of its cycle by name, a review answers."""
    source = inspect.getsource(HttpToolsProtocol)
    asked = {
        re.match(r"\w+", word)[0] for word in source.replace("self.cycle.", "\0").split("\0")[1:]
    }
    made = protocol(ReviewProtocol)
    endpoint = type("Endpoint", (), {"room": None, "now": lambda _self: 0.0})()
    review = DirectCall(made, endpoint, b"")

    # The first two belong to bodies, which a review gathers before the protocol is asked.
    known = {"disconnected", "keep_alive", "message_event", "response_complete"}
    assert asked <= {"body", "more_body"} | known
    for name in ("disconnected", "keep_alive", "message_event", "response_complete"):
        assert hasattr(review, name)
    assert {"disconnected", "keep_alive", "response_complete"} <= set(
        vars(RequestResponseCycle(**dict.fromkeys(parameters(RequestResponseCycle))))
    )


class Open(asyncio.Transport):
    """A connection that is not closed."""

    def is_closing(self):
        return False


async def test_a_connection_at_rest_is_closed_by_the_timer_that_is_kept_by_this_name():
    """What is ours sets it when a review is answered, and uvicorn cancels it."""
    made = protocol()
    made.transport = Open()
    made.flow = FlowControl(made.transport)

    made.on_response_complete()
    timer = made.timeout_keep_alive_task
    assert (made.server_state.total_requests, timer.cancelled()) == (1, False)
    made._unset_keepalive_if_required()

    assert timer.cancelled()
    assert made.timeout_keep_alive_task is None


def test_writing_is_paused_by_this_name():
    assert FlowControl(asyncio.Transport()).write_paused is False


def test_a_status_line_is_the_whole_line():
    assert STATUS_LINE[200] == b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    ("name", "given", "waits"),
    [
        pytest.param("startup", ["self", "sockets"], True, id="startup"),
        pytest.param("main_loop", ["self"], True, id="main-loop"),
        pytest.param("shutdown", ["self", "sockets"], True, id="shutdown"),
        pytest.param("serve", ["self", "sockets"], True, id="serve"),
        pytest.param("capture_signals", ["self"], False, id="signals"),
    ],
)
def test_the_server_is_run_by_these(name, given, waits):
    method = getattr(Server, name)

    assert (parameters(method), inspect.iscoroutinefunction(method)) == (given, waits)


def test_the_server_goes_through_them_in_this_order():
    source = inspect.getsource(Server._serve)

    places = [source.index(f"self.{name}(") for name in ("startup", "main_loop", "shutdown")]
    assert places == sorted(places)
    assert "if self.started:" in source


def test_the_server_keeps_its_connections_and_listeners_by_these_names():
    server = uvicorn.Server(server_config(nothing, grace_seconds=1))

    assert server.server_state.connections == set()
    assert server.server_state.tasks == set()
    assert server.started is False
    assert "for server in self.servers" in inspect.getsource(Server.shutdown)
