"""OpenAPI v3: what kubectl reads to explain kinds, to check fields, and to patch lists."""
