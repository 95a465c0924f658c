"""The files that commands read, and the forms in which they print."""
