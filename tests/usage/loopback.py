"""Prometheus' HTTP API on loopback, for the queries that `policyd usage` sends."""

import asyncio
import math
import re
import threading
from collections import Counter
from contextlib import contextmanager

from aiohttp import web

from tests.usage import recording

_OVER_TIME = re.compile(r"(sum|count|max)_over_time\((.*)\[(\d+)ms\]\)")
_COUNT_BY_JOB = re.compile(r"count by \(job\) \(count_over_time\((.*)\[(\d+)s\]\)\)")
_SELECTOR = re.compile(r"(\w+)(?:\{(.*)\})?")
_MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')
LOOKBACK = 300


class FakePrometheus:
    """Answers from recorded series; `fail` is called first, and may answer in its place."""

    def __init__(self, series=recording.series, *, begin=recording.BEGIN, fail=None):
        self.series = [(name, labels, _samples(value, begin)) for name, labels, value in series()]
        self.now = begin + recording.END - recording.BEGIN
        self.fail, self.queries, self.headers = fail, [], []

    async def answer(self, request):
        asked = await request.post()
        self.queries.append(asked["query"])
        self.headers.append(dict(request.headers))
        if self.fail is not None:
            answered = await self.fail(request, asked)
            if answered is not None:
                return answered
        return web.json_response({"status": "success", "data": self.data(request.path, asked)})

    def data(self, path, asked):
        query = asked["query"]
        if query == "time()":
            return {"resultType": "scalar", "result": [self.now, str(self.now)]}
        if path.endswith("query"):
            return {"resultType": "vector", "result": self.counts(query, float(asked["time"]))}
        first, last, step = (int(float(asked[name])) for name in ("start", "end", "step"))
        return {"resultType": "matrix", "result": self.matrix(query, range(first, last + 1, step))}

    def counts(self, query, at):
        text, seconds = _COUNT_BY_JOB.fullmatch(query).groups()
        counts = Counter(
            labels["job"]
            for labels, samples in self.chosen(text)
            if any(at - int(seconds) < moment <= at for moment in samples)
        )
        return [{"metric": {"job": job}, "value": [at, str(n)]} for job, n in counts.items()]

    def matrix(self, query, moments):
        over, found = _OVER_TIME.fullmatch(query), []
        for labels, samples in self.chosen(over[2] if over else query):
            values = [
                (
                    at,
                    _over(over[1], samples, at, int(over[3]) / 1000)
                    if over
                    else _last(samples, at),
                )
                for at in moments
            ]
            present = [[at, str(value)] for at, value in values if value is not None]
            if present:
                found.append({"metric": labels, "values": present})
        return found

    def chosen(self, text):
        name, matchers = _SELECTOR.fullmatch(text).groups()
        for own, labels, samples in self.series:
            if own == name and all(
                _matches(labels, *each) for each in _MATCHER.findall(matchers or "")
            ):
                yield labels, samples


def _samples(value, begin):
    found = {}
    for at in range(recording.EVERY, recording.END - recording.BEGIN + 1, recording.EVERY):
        sample = value(at)
        if sample is not None:
            found[begin + at] = sample
    return found


def _matches(labels, key, operator, text):
    own = labels.get(key, "")
    found = re.fullmatch(text, own) is not None if "~" in operator else own == text
    return found != operator.startswith("!")


def _over(what, samples, at, seconds):
    first = math.ceil((at - seconds) / recording.EVERY) * recording.EVERY
    moments = range(first, int(at) + 1, recording.EVERY)
    window = [samples[t] for t in moments if t in samples]
    if not window:
        return None
    if what == "count":
        return float(len(window))
    if what == "sum":
        return sum(window)
    return max((each for each in window if not math.isnan(each)), default=math.nan)


def _last(samples, at):
    return next((samples[t] for t in range(int(at), int(at) - LOOKBACK, -1) if t in samples), None)


@contextmanager
def serving(fake):
    """Yield the address of a fake that is served by a thread."""
    loop, ready, address = asyncio.new_event_loop(), threading.Event(), []

    async def start():
        app = web.Application()
        app.router.add_post("/api/v1/{path}", fake.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        address.append(f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}")
        ready.set()
        return runner

    def work():
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait(10)
    try:
        yield address[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
