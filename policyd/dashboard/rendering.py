"""Templates to HTML. All values are escaped, and a name that a template misspells is an error."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from policyd.api.meta import rfc3339
from policyd.dashboard.view import AnyView
from policyd.status.ages import duration
from policyd.status.quantities import format_amount

HERE: Final = Path(__file__).parent
STATIC: Final[Mapping[str, str]] = {
    "page.css": "text/css; charset=utf-8",
    "views.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
"""The files that browsers load beside a page, with their types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFrame:
    """What is around a view.

    Attributes:
        title: The page's.
        at: The path of the view; "" if it is none of the navigation.
        menu: Path and title of each view in the navigation.
        user: The viewer; "" if nobody has signed in.
        scope: The namespace whose queues are shown; "" for all of the cluster.
        scopes: Namespaces that can be chosen; "" for all of the cluster.
        query: Of the page, without the namespace.
        form_token: For forms.
        notices: Sentences above the view.
        live: The address of the changes; "" if none are sent.
        now: Seconds since the epoch.
    """

    title: str
    at: str = ""
    menu: tuple[tuple[str, str], ...] = ()
    user: str = ""
    scope: str = ""
    scopes: tuple[str, ...] = ()
    query: tuple[tuple[str, str], ...] = ()
    form_token: str = ""
    notices: tuple[str, ...] = ()
    live: str = ""
    now: float = 0.0

    def link(self, path: str, **query: object) -> str:
        """Return the address of a view in the same scope, without empty parameters."""
        scope = {"namespace": self.scope} if self.scope else {}
        return address(path, {**query, **scope})

    def same(self, **changed: object) -> str:
        """Return the address of this page with some parameters changed, "" to leave one out."""
        return self.link(self.at, **{**dict(self.query), **changed})


def address(path: str, query: Mapping[str, object]) -> str:
    """Return a path with a query, without its empty parameters."""
    given = [(name, str(value)) for name, value in query.items() if value not in ("", None)]
    return f"{path}?{urlencode(given)}" if given else path


@cache
def static_file(name: str) -> tuple[bytes, str]:
    """Return a file that browsers load, and what names this version of it."""
    body = (HERE / "static" / name).read_bytes()
    return body, hashlib.sha256(body).hexdigest()[:16]


def _static(name: str) -> str:
    return f"/static/{name}?v={static_file(name)[1]}"


def _amount(amount: int | None, resource: str) -> str:
    return "no limit" if amount is None else format_amount(resource, amount)


def _words(text: str) -> Markup:
    """Write a sentence in which words of the user or of the command line are in backticks."""
    parts = map(escape, text.split("`"))
    marked = (
        Markup("<code>{}</code>").format(part) if n % 2 else part for n, part in enumerate(parts)
    )
    return Markup("").join(marked)


class Renderer:
    """Renders views."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals["static"] = _static
        self._environment.filters |= {
            "amount": _amount,
            "count": "{:,}".format,
            "duration": duration,
            "time": rfc3339,
            "words": _words,
        }
        self._environment.globals["ui"] = self._environment.get_template("macros.html").module

    def whole(self, template: str, page: PageFrame, model: object = None) -> str:
        """Return a page."""
        return self._environment.get_template(template).render(page=page, model=model)

    def fragments(self, view: AnyView, page: PageFrame, model: object) -> dict[str, str]:
        """Return the blocks of a view that are sent when they change, by the ids around them."""
        return dict(self._blocks(view.template, ("notices", *view.live), page, model))

    def _blocks(
        self,
        template: str,
        names: Iterable[str],
        page: PageFrame,
        model: Any,  # noqa: ANN401
    ) -> Iterable[tuple[str, str]]:
        found = self._environment.get_template(template)
        parent = self._environment.get_template("layout.html")
        for name in names:
            context = found.new_context({"page": page, "model": model})
            block = found.blocks.get(name) or parent.blocks[name]
            yield f"live-{name}", "".join(block(context))
