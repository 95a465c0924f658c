"""The application: how a request becomes a page.

A request is checked (host, query, form), its sender is found out (cookie, proxy), the scope is
chosen and authorized, the view reads and builds its model, and the template becomes HTML.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Final
from urllib.parse import quote

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from policyd.dashboard.access import Identity, Rights, Scopes, Session, Sessions
from policyd.dashboard.feeds import Feeds
from policyd.dashboard.guard import (
    BROKEN,
    LOGGED,
    OF_A_TEAM,
    OF_A_USER,
    OF_AN_ADDRESS,
    SIGN_INS,
    Address,
    GuardedApp,
    RequestRates,
    RequestRefusedError,
    client_of,
    form_of,
    query_of,
)
from policyd.dashboard.live import Hub, TooManyViewersError
from policyd.dashboard.rendering import STATIC, PageFrame, Renderer, address, static_file
from policyd.dashboard.signing_in import (
    OneTimeLinks,
    ProxySessions,
    SignInError,
    TokenSignIn,
    TrustedProxy,
)
from policyd.dashboard.view import AnyView, CountReviews, PageRequest, QueryError
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import ApiError, ForbiddenError, InvalidNameError, NotFoundError
from policyd.kube.pace import Pace

SCOPE: Final = "namespace"
"""The parameter of the query with the namespace whose queues are shown."""
MOST_NEXT: Final = 2_000
"""Characters of the address that one is led to after signing in."""

log = structlog.get_logger()

Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningIn:
    """The ways of signing in that are open; None for those that are not."""

    tokens: TokenSignIn | None = None
    links: OneTimeLinks | None = None
    proxy: TrustedProxy | None = None
    new_link: Callable[[], None] = lambda: None
    """Called when a request has no session, and no link is left to be used."""


class Dashboard:
    """The page."""

    def __init__(  # noqa: PLR0913 - all that differs between the places where it is served
        self,
        own: Client,
        views: Sequence[AnyView],
        signing_in: SigningIn,
        *,
        address: Address | None = None,
        namespace: str = "",
        reviews: CountReviews | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Make the page.

        Args:
            own: The API server, with the rights of the page itself.
            views: The views, in the order of the navigation.
            signing_in: How people can sign in.
            address: Where browsers find it.
            namespace: The one to show to those who may see no other; "" for none.
            reviews: Reads what the webhooks count; None where they cannot be asked.
            pace: Time.
        """
        self.pace = pace or Pace()
        clock = self.pace.clock
        self.sessions = Sessions(clock)
        self.hub = Hub(self.pace)
        self.rights = Rights(own, clock=clock)
        self._of_users = RequestRates(clock, OF_A_USER)
        self._of_teams = RequestRates(clock, OF_A_TEAM)
        self._of_strangers = RequestRates(clock, OF_AN_ADDRESS)
        self._sign_ins = RequestRates(clock, SIGN_INS)
        self._logged = RequestRates(clock, LOGGED)
        self._views = views
        self._signing_in = signing_in
        self._address = address or Address()
        self._feeds = Feeds(own, clock=clock)
        self._reviews = reviews
        self._scopes = Scopes(own, self.rights, clock=clock, namespace=namespace)
        self._proxied = ProxySessions(own, self.rights, clock)
        self._renderer = Renderer()
        self._menu = tuple((each.path, each.title) for each in views if each.in_menu)

    @property
    def app(self) -> ASGIApp:
        """The ASGI application."""
        routes = [
            Route("/healthz", _healthy),
            Route("/static/{name}", _static),
            Route("/sign-in", self._checked(self._sign_in_page)),
            Route("/sign-in", self._checked(self._sign_in), methods=["POST"]),
            Route("/sign-out", self._checked(self._sign_out), methods=["POST"]),
            Route("/enter/{secret}", self._checked(self._enter)),
        ]
        for view in self._views:
            methods = ["GET", "POST"] if view.submit else ["GET"]
            shown, live = partial(self._view, view), partial(self._live, view)
            routes.append(Route(view.path, self._checked(shown), methods=methods))
            if view.live:
                routes.append(Route(f"/live{view.path}", self._checked(live)))
        errors = {404: self._no_page, 405: self._no_page, Exception: self._broken}
        return GuardedApp(
            Starlette(routes=routes, exception_handlers=errors), address=self._address
        )

    async def close(self) -> None:
        """End all sessions and what is sent to browsers."""
        await self.hub.close()
        await self.sessions.end_all()

    def _checked(self, handler: Handler) -> Handler:
        """Answer requests that pass the checks; errors become pages with a sentence."""

        async def answer(request: Request) -> Response:
            try:
                self._address.check_host(request.headers.get("host", ""))
                if request.method == "POST":
                    self._address.check_origin(request)
                return await handler(request)
            except RequestRefusedError as error:
                problem = self._problem(str(error), status=error.status)
                if error.after:
                    problem.headers["Retry-After"] = str(error.after)
                return problem
            except PolicydError as error:
                return self._problem(str(error), hint=error.hint, status=_status_of(error))

        return answer

    # signing in

    async def _session(self, request: Request) -> Session | None:
        """Return the session of a request; None if its sender has to sign in."""
        identity = self._proxied_identity(request)
        if identity is not None:
            self._limit_user(identity)
            return await self._proxied.session(identity, self.sessions.begin)
        key = request.cookies.get(self._address.cookie, "")
        session = await self.sessions.find(key) if key else None
        if session is None:
            _limit(self._of_strangers, _sender(request))
        else:
            self._limit_user(session.identity)
        return session

    def _limit_user(self, identity: Identity) -> None:
        _limit(self._of_users, identity.name)
        _limit(self._of_teams, identity.team)

    def _proxied_identity(self, request: Request) -> Identity | None:
        proxy = self._signing_in.proxy
        return None if proxy is None else proxy.identity(request)

    async def _sign_in_page(self, request: Request, *, problem: str = "") -> Response:
        _limit(self._of_strangers, _sender(request))
        links = self._signing_in.links
        if links is not None and not links.outstanding:
            self._signing_in.new_link()
        model = {
            "tokens": self._signing_in.tokens is not None,
            "links": links is not None,
            "problem": problem,
            "next": _next(request.query_params.get("next", "/")),
        }
        page = PageFrame(title="Sign in", now=self.pace.clock.now())
        status = 401 if problem else 200
        return HTMLResponse(self._renderer.whole("sign-in.html", page, model), status_code=status)

    async def _sign_in(self, request: Request) -> Response:
        tokens = self._signing_in.tokens
        if tokens is None:
            raise RequestRefusedError("tokens are not taken here", 404)
        _limit(self._sign_ins, _sender(request))
        form = await form_of(request)
        try:
            session = await tokens.session(form.get("token", ""))
        except SignInError as error:
            return await self._sign_in_page(request, problem=f"{error}: {error.hint}")
        return await self._begin(session, _next(form.get("next", "/")))

    async def _enter(self, request: Request) -> Response:
        links = self._signing_in.links
        if links is None or request.method != "GET":  # a HEAD is no visit
            raise RequestRefusedError("there are no links here", 404)
        _limit(self._of_strangers, _sender(request))
        try:
            session = links.session(request.path_params["secret"])
        except SignInError as error:
            return await self._sign_in_page(request, problem=f"{error}: {error.hint}")
        return await self._begin(session, "/")

    async def _begin(self, session: Session, next_: str) -> Response:
        await self.sessions.begin(session)
        response = self._lead_on(next_)
        response.set_cookie(
            self._address.cookie,
            session.key,
            max_age=int(session.ends_at - self.pace.clock.monotonic()),
            path="/",
            secure=self._address.secure,
            httponly=True,
            samesite="strict",
        )
        return response

    def _lead_on(self, to: str) -> Response:
        """Answer with a page that leads to another of ours.

        A redirect would not do: the browser leaves strict cookies out until a page of ours asks.
        """
        page = PageFrame(title="policyd", now=self.pace.clock.now())
        return HTMLResponse(self._renderer.whole("lead-on.html", page, {"to": to}))

    async def _sign_out(self, request: Request) -> Response:
        session = await self._session(request)
        if session is not None:
            self._check_form(session, await form_of(request))
            await self.sessions.end(session)
        response = RedirectResponse("/sign-in", 303)
        response.delete_cookie(
            self._address.cookie,
            path="/",
            secure=self._address.secure,
            httponly=True,
            samesite="strict",
        )
        return response

    @staticmethod
    def _check_form(session: Session, form: Mapping[str, str]) -> None:
        if not session.sent_by_its_form(form.get("form_token", "")):
            raise RequestRefusedError("the form is of another session: load the page again")

    # views

    async def _view(self, view: AnyView, request: Request) -> Response:
        session = await self._session(request)
        if session is None:
            return await self._not_signed_in(request)
        query = query_of(request)
        page, status = self._page(view, session, query), 200
        form: Mapping[str, str] | None = None
        if request.method == "POST":
            form = await form_of(request)
            self._check_form(session, form)
        try:
            asked = await self._asked(view, request, session, query)
            page = self._page(view, session, query, asked)
            read = view.read(asked) if form is None else view.submit(asked, form)  # type: ignore[misc]
            model = view.build(await read, asked.query, asked.now)
        except PolicydError as error:
            scopes = await self._scopes.choices(session)
            page = self._page(view, session, query, scopes=scopes)
            return self._problem(str(error), hint=error.hint, status=_status_of(error), page=page)
        scopes = await self._scopes.choices(session)
        page = self._page(view, session, query, asked, scopes=scopes)
        return HTMLResponse(self._renderer.whole(view.template, page, model), status_code=status)

    async def _asked(
        self, view: AnyView, request: Request, session: Session, query: Mapping[str, str]
    ) -> PageRequest:
        """Return what a view reads from, once its scope is authorized."""
        scope = await self._scopes.chosen(session, query.get(SCOPE))
        allowed = frozenset(
            [word for word, to in view.rights.items() if await self.rights.may(session, to(scope))]
        )
        return PageRequest(
            path=request.path_params,
            query={name: value for name, value in query.items() if name != SCOPE},
            scope=scope,
            now=self.pace.clock.now(),
            session=session,
            client=session.client,
            feeds=self._feeds,
            reviews=self._reviews,
            allowed=allowed,
        )

    def _page(
        self,
        view: AnyView,
        session: Session,
        query: Mapping[str, str],
        asked: PageRequest | None = None,
        *,
        scopes: tuple[str, ...] = (),
    ) -> PageFrame:
        at = view.path if asked is None else _filled(view.path, asked.path)
        scope = query.get(SCOPE, "") if asked is None else asked.scope
        own = {name: value for name, value in query.items() if name != SCOPE}
        live = address(f"/live{at}", {**own, SCOPE: scope}) if view.live and asked else ""
        return PageFrame(
            title=view.title,
            at=at,
            menu=self._menu,
            user=session.identity.name,
            scope=scope,
            scopes=scopes,
            query=tuple(own.items()),
            form_token=session.form_token,
            notices=() if asked is None else tuple(asked.notices),
            live=live,
            now=self.pace.clock.now(),
        )

    async def _not_signed_in(self, request: Request) -> Response:
        """Lead to the sign-in page; or on to the same page, if a cookie may have been left out.

        Browsers leave a strict cookie out of requests that another site leads to.
        """
        at = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        if request.headers.get("sec-fetch-site") == "cross-site":
            return self._lead_on(_next(at))
        return RedirectResponse(address("/sign-in", {"next": _next(at)}), 303)

    # changes

    async def _live(self, view: AnyView, request: Request) -> Response:
        session = await self._session(request)
        if session is None:
            raise RequestRefusedError("sign in first", 401)
        query = query_of(request)
        first = await self._asked(view, request, session, query)
        key = (
            view.path,
            tuple(sorted(first.path.items())),
            tuple(sorted(first.query.items())),
            first.scope,
            first.allowed,
            None if view.shared else session.key,
        )

        async def render() -> Mapping[str, str]:
            asked = replace(first, now=self.pace.clock.now(), live=True, notices=[])
            model = view.build(await view.read(asked), asked.query, asked.now)
            page = self._page(view, session, query, asked)
            return self._renderer.fragments(view, page, model)

        async def still() -> bool:
            if await self.sessions.find(session.key) is None:
                return False
            now = await self._asked(view, request, session, {**query, SCOPE: first.scope})
            return now.allowed == first.allowed

        try:
            changes = self.hub.changes(key, session.identity, render, still)
        except TooManyViewersError as error:
            return self._problem(str(error), status=503)
        return StreamingResponse(changes, media_type="text/event-stream")

    # errors

    def _problem(
        self, text: str, *, hint: str | None = None, status: int, page: PageFrame | None = None
    ) -> Response:
        page = page or PageFrame(title="Not shown", now=self.pace.clock.now())
        model = {"text": text, "hint": hint or "", "status": status}
        return HTMLResponse(self._renderer.whole("problem.html", page, model), status_code=status)

    async def _no_page(self, request: Request, _error: Exception) -> Response:
        del request
        return self._problem("there is no such page", status=404)

    async def _broken(self, _request: Request, error: Exception) -> Response:
        """Answer where the page itself has an error; what it is goes to the log alone."""
        if not self._logged.wait(""):
            log.error("page_failed", error=repr(error), exc_info=error)
        text = "the page could not be made; the log says why\n"
        return Response(text, BROKEN, media_type="text/plain")


def _limit(rates: RequestRates, client: str) -> None:
    """Count a request of a client.

    Raises:
        RequestRefusedError: If it has sent too many.
    """
    wait = rates.wait(client)
    if wait:
        raise RequestRefusedError("too many requests: try again", 429, after=ceil(wait))


def _sender(request: Request) -> str:
    return client_of(request.client.host if request.client else "")


def _status_of(error: PolicydError) -> int:
    match error:
        case QueryError():
            return 400
        case ForbiddenError():
            return 403
        case NotFoundError() | InvalidNameError():
            return 404
        case ApiError() | _:
            return 503


def _next(text: str) -> str:
    """Return a path of this page that one may be led to; `/` if it is any other address."""
    plain = text.isprintable() and "\\" not in text and len(text) <= MOST_NEXT
    ours = text.startswith("/") and not text.startswith("//")
    return text if plain and ours else "/"


def _filled(path: str, parameters: Mapping[str, str]) -> str:
    for name, value in parameters.items():
        path = path.replace(f"{{{name}}}", quote(value, safe=""))
    return path


async def _healthy(_request: Request) -> Response:
    return Response("ok\n", media_type="text/plain")


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return Response(status_code=404)
    body, version = static_file(name)
    fresh = request.query_params.get("v") == version
    keep = "public, max-age=31536000, immutable" if fresh else "no-cache"
    headers = {"Cache-Control": keep}
    return Response(body, headers=headers, media_type=STATIC[name])
