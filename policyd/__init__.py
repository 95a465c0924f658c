"""policyd: policy engine and job queue for multi-tenant GPU clusters on stock Kubernetes."""

__version__ = "0.1.0"
