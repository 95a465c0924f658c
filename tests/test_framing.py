"""Where requests end in what comes in, however it is cut, and what is refused."""

import httptools
import pytest

from policyd.framing import (
    CHUNKS_FREE,
    HEAD_BYTES,
    HEAD_LINES,
    BrokenError,
    Framing,
)

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"


def post(body, head=b""):
    return b"POST / HTTP/1.1\r\n%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def chunked(*chunks, last=b"0\r\n\r\n"):
    sent = b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
    return b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n" + sent + last


STREAMS = [
    pytest.param(GET, 1, id="no-body"),
    pytest.param(post(b"{}"), 1, id="body"),
    pytest.param(post(b""), 1, id="body-of-no-bytes"),
    pytest.param(GET + post(b"a" * 100) + GET, 3, id="one-after-another"),
    pytest.param(post(b"a" * 5) + post(b"b" * 70) + post(b"") + post(b"c"), 4, id="heads-alike"),
    pytest.param(post(b"a") + post(b"bc", b"d: e\r\n") + post(b"a"), 3, id="heads-not-alike"),
    pytest.param(chunked(b"abc", b"d" * 5000), 1, id="chunks"),
    pytest.param(chunked() + GET, 2, id="no-chunks"),
    pytest.param(chunked(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n") + GET, 2, id="a-request-in-a-chunk"),
    pytest.param(post(b"\r\n\r\n" * 9) + GET, 2, id="ends-of-heads-in-a-body"),
    pytest.param(chunked(last=b"3;a=b\r\nabc\r\n0\r\n\r\n"), 1, id="extension-of-a-chunk"),
]


@pytest.mark.parametrize(("stream", "requests"), STREAMS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 100_000])
def test_requests_are_counted_and_passed_on_however_they_are_cut(stream, requests, size):
    framing = Framing()

    passed = take_all(framing, stream, size)

    assert (passed, framing.requests) == (stream, requests)
    assert (framing.in_head, framing.held) == (True, b"")


def take_all(framing, stream, size):
    """Take a stream in pieces; return what is passed on, each piece no more than a request's."""
    passed = []
    for at in range(0, len(stream), size):
        behind = stream[at : at + size]
        while behind:
            requests = framing.requests
            taken, behind = framing.take(behind)
            assert framing.requests <= requests + 1
            passed.append(taken)
    return b"".join(passed)


class Seen:
    """What the parser behind sees."""

    def __init__(self, stream):
        self.heads = self.requests = 0
        httptools.HttpRequestParser(self).feed_data(stream)

    def on_headers_complete(self):
        self.heads += 1

    def on_message_complete(self):
        self.requests += 1


@pytest.mark.parametrize(("stream", "requests"), STREAMS)
def test_the_parser_behind_sees_the_same_requests(stream, requests):
    assert Seen(stream).requests == requests


def test_a_head_is_passed_on_whole():
    framing = Framing()

    assert framing.take(GET[:-1]) == (b"", b"")
    assert framing.take(GET[-1:] + GET[:5]) == (GET, GET[:5])


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        pytest.param(b"GET / HTTP/1.1\r\na: " + b"x" * HEAD_BYTES, "head_too_large", id="endless"),
        pytest.param(
            b"GET / HTTP/1.1\r\na: " + b"x" * HEAD_BYTES + b"\r\n\r\n", "head_too_large", id="long"
        ),
        pytest.param(
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * HEAD_LINES + b"\r\n", "head_too_large", id="lines"
        ),
        pytest.param(b"GET / HTTP/1.1\na: b\r\n\r\n", "not_http", id="bare-line-feed"),
        pytest.param(b"\r\n\r\n", "not_http", id="nothing"),
        pytest.param(post(b"a", b"content-length: 2\r\n"), "not_http", id="two-lengths"),
        pytest.param(post(b"a", b"content-length: 1\r\n"), "not_http", id="a-length-twice"),
        pytest.param(post(b"a", b"transfer-encoding: chunked\r\n"), "not_http", id="both"),
        pytest.param(
            b"POST / HTTP/1.1\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "not_http", id="coding"
        ),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: +1\r\n\r\n", "not_http", id="signed"),
        pytest.param(b"POST / HTTP/1.1\r\ncontent-length: \r\n\r\n", "not_http", id="no-length"),
        pytest.param(
            b"POST / HTTP/1.1\r\ncontent-length: %b\r\n\r\n" % (b"9" * 19), "not_http", id="huge"
        ),
        pytest.param(chunked(last=b"-1\r\n"), "not_http", id="negative-chunk"),
        pytest.param(chunked(last=b"0x5\r\n"), "not_http", id="prefixed-chunk"),
        pytest.param(chunked(last=b"1_0\r\n"), "not_http", id="chunk-with-an-underscore"),
        pytest.param(chunked(last=b"\r\n"), "not_http", id="no-size"),
        pytest.param(chunked(last=b"5\nabcde"), "not_http", id="chunk-after-a-bare-line-feed"),
        pytest.param(chunked(last=b"5;" + b"x" * 600), "not_http", id="endless-extension"),
        pytest.param(chunked(last=b"0\r\na: b\r\n\r\n"), "not_http", id="lines-after-the-chunks"),
        pytest.param(chunked(*[b"x"] * (CHUNKS_FREE + 1)), "too_many_chunks", id="tiny-chunks"),
    ],
)
@pytest.mark.parametrize("size", [1000, 1_000_000])
def test_unbounded_or_ambiguous_input_is_refused(stream, reason, size):
    framing = Framing()

    with pytest.raises(BrokenError) as caught:
        take_all(framing, stream, size)

    assert caught.value.reason == reason


@pytest.mark.parametrize("length", [b"+1", b"1 1", b"", b"9" * 16, b"1\r\ncontent-length: 1"])
def test_a_head_like_one_before_is_held_to_the_same(length):
    framing = Framing()
    framing.take(post(b"a"))

    with pytest.raises(BrokenError):
        framing.take(post(b"a").replace(b": 1\r", b": %b\r" % length))


def test_no_more_than_a_head_is_held():
    framing = Framing()
    take_all(framing, b"x" * HEAD_BYTES, 1000)

    with pytest.raises(BrokenError):
        framing.take(b"x")


def test_large_chunks_may_be_many():
    framing = Framing()
    framing.take(chunked(*[b"x" * 4096] * 1000))

    assert framing.requests == 1
