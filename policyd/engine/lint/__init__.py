"""Find likely errors in policies that compile.

Imports the other folders of the engine, and `cel`. Start with `policy_warnings`.
"""
