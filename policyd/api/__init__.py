"""The types that cross the process boundary, and what is known of Kubernetes' kinds. Pure."""
