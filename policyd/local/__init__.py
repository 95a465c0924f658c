"""An embedded cluster in one process, for `policyd up`, demos and tests."""
