"""YAML and JSON documents that remember places, and findings that name them."""
