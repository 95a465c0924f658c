"""Answers to writes: create, replace, patch, delete."""
