"""A real Kubernetes control plane for the tests: how it is built, started and stopped."""
