"""Answers to GET and watch: objects, lists, tables."""
