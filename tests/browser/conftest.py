"""A browser, and pages to look at: of `policyd up`, and of a real control plane."""

import os
from importlib.util import find_spec

import pytest

from tests.browser import programs
from tests.scenarios import clusters

collect_ignore_glob = [] if find_spec("playwright") else ["test_*.py"]
"""Without Playwright, which `make browser` installs, there are no tests."""


@pytest.fixture(scope="session")
def browser():
    """Chromium; its sandbox needs a user that is not root."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - it may be missing

    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=programs.chromium(), args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def up(tmp_path_factory):
    """The page of `policyd up`, on a cluster with something to see."""
    from tests.browser.served import ServedPage, populate  # noqa: PLC0415

    with clusters.embedded(tmp_path_factory.mktemp("up")) as cluster:
        populate(cluster.api)
        yield ServedPage(cluster, cluster.controller)


@pytest.fixture
def visitor(browser):
    """A browser of its own, at a desk."""
    from tests.browser.visiting import visiting  # noqa: PLC0415

    with visiting(browser) as visitor:
        yield visitor
