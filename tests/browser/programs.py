"""Where `install.sh` puts what the browser tests need."""

import os
import shutil
from pathlib import Path

import pytest


def folder() -> Path:
    """Return the cache of the browser tests."""
    cache = os.environ.get("POLICYD_CACHE")
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache or Path(user) / "policyd") / "browser"


def chromium() -> str:
    """Return Chromium's path, or skip."""
    unpacked = folder() / "chromium" / "run"
    found = str(unpacked) if unpacked.exists() else shutil.which("chromium")
    if found is None:
        pytest.skip("chromium is not installed: `make browser` installs it")
    return found


def axe() -> str:
    """Return axe-core's source, or skip."""
    file = folder() / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    if not file.exists():
        pytest.skip("axe-core is not installed: `make browser` installs it")
    return file.read_text()
