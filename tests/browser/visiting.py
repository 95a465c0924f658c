"""A person who looks at the page in a browser, and all that goes wrong in there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect

from tests.browser import programs

PHONE = {"width": 375, "height": 740}
DESK = {"width": 1280, "height": 900}
PATIENCE_MS = 20_000
"""How long a browser waits for what it is told to expect; machines may be busy."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Visitor:
    """A browser of its own, with one tab.

    Attributes:
        context: The browser's cookies and settings.
        page: The tab.
        errors: What the console has of errors: scripts that failed, refused by the policy of
            content, or not found.
    """

    context: BrowserContext
    page: Page
    errors: list[str] = field(default_factory=list)

    def goes(self, url: str) -> int:
        """Load a page, and return the status of the answer."""
        answer = self.page.goto(url, wait_until="load")
        assert answer is not None, url
        return answer.status

    def violations(self) -> list[str]:
        """Return what axe finds wrong, as `rule: element`."""
        self.page.evaluate(programs.axe())
        found: dict[str, Any] = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']})"
        )
        return [
            f"{each['id']} ({each['help']}): {node['target']} {node['html'][:200]}"
            for each in found["violations"]
            for node in each["nodes"]
        ]

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than the window."""
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(self.page.evaluate(width))


@contextmanager
def visiting(browser: Browser, **options: Any) -> Iterator[Visitor]:
    """Open a browser of its own: none of its errors may be left at the end.

    Args:
        browser: Chromium.
        options: Of the browser, as Playwright has them.
    """
    given = {"viewport": DESK, "reduced_motion": "reduce", "timezone_id": "UTC", "locale": "en-US"}
    context = browser.new_context(**{**given, **options})
    context.set_default_timeout(PATIENCE_MS)
    try:
        page = context.new_page()
        visitor = Visitor(context, page)
        page.on("console", lambda message: _note(visitor, message))
        page.on("pageerror", lambda error: visitor.errors.append(f"script: {error}"))
        page.on("dialog", lambda dialog: visitor.errors.append(f"dialog: {dialog.message}"))
        yield visitor
        assert not visitor.errors, "\n".join(visitor.errors)
    finally:
        context.close()


def _note(visitor: Visitor, message: ConsoleMessage) -> None:
    if message.type == "error":
        visitor.errors.append(f"console: {message.text} ({message.location.get('url', '')})")


MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata: {name: tried, namespace: team-a}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: registry.example/train:1
        resources: {limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 8}}
"""
