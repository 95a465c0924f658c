"""Composition root of the admission server."""


def main() -> None:
    """Start the admission server."""
    raise NotImplementedError
