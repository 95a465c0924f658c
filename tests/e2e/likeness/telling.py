"""Telling a server a story, and noting what it answers."""

import difflib
import itertools
import json
import time
from urllib.parse import quote, urlencode

from tests.e2e.likeness.asking import NAMESPACE, Answer, blanked, decoded
from tests.e2e.likeness.objects import make
from tests.e2e.likeness.servers import WAIT_SECONDS

NUMBERS = itertools.count()
POLL_SECONDS = 0.05


def run_story(server, story):
    """Make the requests of a story in a new namespace; return what was answered, blanked."""
    namespace = new_namespace(server)
    answers, last = [], None
    for ask in story:
        code, warnings, last = answer(server, ask, namespace, last)
        sent = ask.accept + ("" if callable(ask.body) else json.dumps(ask.body))
        warned = [blanked(warning) for warning in warnings]
        answers.append(Answer(str(ask), code, warned, blanked(last), sent))
    return answers


def new_namespace(server):
    """Create a namespace, and return its name."""
    namespace = f"likeness-{next(NUMBERS)}"
    raw(server, "POST", "/api/v1/namespaces", json.dumps(make("Namespace", namespace)).encode())
    return namespace


def unlike(answers):
    """Show where what two servers said differs, line by line."""
    lines = {
        who: json.dumps(parts, indent=1, sort_keys=True).splitlines()
        for who, parts in answers.items()
    }
    return "\n".join(
        difflib.unified_diff(lines["embedded"], lines["real"], "embedded", "real", lineterm="")
    )


def answer(server, ask, namespace, last):
    """Make one request, until it is answered as it wants; return code, warnings and body."""
    deadline = time.monotonic() + WAIT_SECONDS
    query = f"?{urlencode(ask.query)}" if ask.query else ""
    target = quote(ask.path.replace(NAMESPACE, namespace), safe="/:") + query
    body = ask.body(last) if callable(ask.body) else ask.body
    body = body if isinstance(body, str) or body is None else json.dumps(body)
    sent = None if body is None else body.replace(NAMESPACE, namespace).encode()
    headers = {"Content-Type": ask.content, "Accept": ask.accept}
    while True:
        code, warnings, found = raw(server, ask.method, target, sent, headers)
        if ask.until is None or ask.until(found):
            return code, warnings, found
        if time.monotonic() > deadline:
            return code, warnings, found
        time.sleep(POLL_SECONDS)


def raw(server, method, target, body, headers=None):
    headers = headers or {"Content-Type": "application/json"}
    code, found, sent = server.ask(method, target, body, headers)
    return code, found.get_all("Warning") or [], decoded(sent)
