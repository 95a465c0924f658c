"""One module per job kind: its pod sets, how it is held, started and finished. Pure."""
