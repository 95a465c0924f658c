"""The policy engine: load, match, mutate, validate, inject. Pure."""
