"""The admission server: HTTP in, a decision out. Nothing is decided here."""
