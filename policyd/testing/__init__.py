"""Fakes of the world, shipped: a clock, and an API server in memory.

They behave like the real ones wherever policyd can tell, which one set of tests checks on both.

Imports `kube`, `patch` and `api`. Start with `fake_client`.
"""

from policyd.testing.clock import FakeClock
from policyd.testing.fake_client import FakeClient, Write
from policyd.testing.objects import ObjectStore, StoredChange

__all__ = ["FakeClient", "FakeClock", "ObjectStore", "StoredChange", "Write"]
