"""A page over an API server in memory, and a browser that looks at it."""

import json

import msgspec
from starlette.testclient import TestClient

from policyd.dashboard.access import SESSION_SECONDS, Identity, Session
from policyd.dashboard.app import Dashboard, SigningIn
from policyd.dashboard.guard import Address
from policyd.dashboard.pages import VIEWS
from policyd.dashboard.signing_in import OneTimeLinks, TokenSignIn
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import UnavailableError
from policyd.kube.pace import Pace
from policyd.kube.resources import LOCAL_QUEUES
from policyd.questions.snapshots import OF_CLUSTER, OF_NAMESPACE
from policyd.testing import FakeClient, FakeClock
from tests.snapshot.taking import body_for, taken

HOST = "localhost:8080"
HERE = f"http://{HOST}"


class FakeApi(FakeClient):
    """Knows tokens, and who may do what.

    Attributes:
        tokens: The user's name and groups, by token.
        grants: Triples of user, resource and namespace; "" for the cluster.
        asked: The specs of all access reviews.
        silent: Whether reviews are not answered.
    """

    def __init__(self):
        super().__init__()
        self.tokens, self.grants, self.asked, self.silent = {}, set(), [], False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def get(self, resource, name, *, into, namespace="", subresource=""):
        resource.path(namespace, name, subresource)  # which refuses names that lead elsewhere
        options = {"namespace": namespace, "subresource": subresource}
        return await super().get(resource, name, into=into, **options)

    async def create(self, resource, body, *, into, **options):
        answer = {
            "TokenReview": self._token,
            "SubjectAccessReview": self._access,
            "SelfSubjectAccessReview": lambda _: {"allowed": True},
        }.get(resource.kind)
        if answer is None:
            return await super().create(resource, body, into=into, **options)
        if self.silent:
            raise UnavailableError("no answer from 10.0.0.1")
        return _into(into, {"status": answer(body["spec"])})

    def _token(self, spec):
        name = self.tokens.get(spec["token"])
        if name is None:
            return {"authenticated": False}
        return {"authenticated": True, "user": {"username": name, "groups": ["g"], "uid": "u"}}

    def _access(self, spec):
        self.asked.append(spec)
        about = spec["resourceAttributes"]
        return {"allowed": (spec["user"], about["resource"], about["namespace"]) in self.grants}

    def serve(self, state, *, scope="", queues=(), others="names", at=None, **changes):
        """Serve a snapshot of a state for a scope."""
        full = taken(state, queues=queues)
        body = json.loads(body_for(full, scope=scope, reader=scope, others=others))
        self.serve_body({**body, **changes, **({} if at is None else {"takenAt": at})}, scope)

    def serve_body(self, body, scope=""):
        body["metadata"] = {"name": "current", **({"namespace": scope} if scope else {})}
        if scope:
            about = {"name": "main", "namespace": scope}
            self.store.put(LOCAL_QUEUES, {"metadata": about, "spec": {"clusterQueue": "q"}})
        self.store.put(OF_NAMESPACE if scope else OF_CLUSTER, body)


def _into(into, value):
    return msgspec.convert(value, into, strict=False)


class Looking:
    """A page, and a browser without a session."""

    def __init__(self, *, views=VIEWS, address=None, proxy=None, namespace="", reviews=None):
        self.api, self.clock, self.printed_links = FakeApi(), FakeClock(), []
        self.connections = []
        self.pace = Pace(clock=self.clock)
        self.links = OneTimeLinks(self.api, self.clock)
        connection = ApiConnection(server="http://127.0.0.1:1")
        tokens = TokenSignIn(self.api, connection, self.clock, opened=self.opened)
        self.page = Dashboard(
            self.api,
            views,
            SigningIn(
                tokens=tokens,
                links=self.links,
                proxy=proxy,
                new_link=lambda: self.printed_links.append(self.links.new()),
            ),
            address=address or Address(),
            namespace=namespace,
            reviews=reviews,
            pace=self.pace,
        )
        self.browser = self.another()

    def opened(self, connection):
        self.connections.append(connection)
        return self.api

    def wait(self, seconds):
        """Let time pass."""
        self.clock._pass(seconds)

    def another(self, host=HOST):
        return TestClient(
            self.page.app, base_url=f"http://{host}", raise_server_exceptions=False,
            follow_redirects=False,
        )  # fmt: skip

    def enter(self):
        """Sign in by the link of the terminal."""
        answer = self.browser.get(f"/enter/{self.links.new()}")
        assert answer.status_code == 200
        return answer

    def sign_in(self, name="ann", *scopes, browser=None):
        """Sign in by a token as somebody who may see some scopes."""
        self.api.tokens[f"token-of-{name}"] = name
        self.grant(name, *scopes)
        return self.post("/sign-in", {"token": f"token-of-{name}"}, browser=browser)

    def grant(self, name, *scopes):
        for scope in scopes:
            plural = OF_NAMESPACE.plural if scope else OF_CLUSTER.plural
            self.api.grants.add((name, plural, scope))

    def post(self, path, fields, *, browser=None, origin=HERE, **headers):
        given = {} if origin is None else {"origin": origin}
        return (browser or self.browser).post(path, data=fields, headers={**given, **headers})

    def get(self, path, **headers):
        return self.browser.get(path, headers=headers)

    def session(self, name="ann"):
        return Session(
            identity=Identity(name, "token"), client=self.api,
            ends_at=self.clock.monotonic() + SESSION_SECONDS,
        )  # fmt: skip
