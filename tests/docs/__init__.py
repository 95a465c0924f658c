"""The documentation is true: its commands run, its YAML loads, its links lead somewhere."""
