"""Tests of the allocation core, with a slow and obvious version of it as their oracle."""
