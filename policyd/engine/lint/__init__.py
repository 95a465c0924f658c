"""Find likely errors in policies that compile.

Imports the other folders of the engine, `patch` and `cel`. Start with `policy_warnings`.
"""
