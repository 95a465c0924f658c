"""Kinds that CustomResourceDefinitions add: their schemas, and what the server does by them."""
