"""Tests of counting devices."""
