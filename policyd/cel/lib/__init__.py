"""The functions of CEL and of the API server's environment, a module for each library."""
