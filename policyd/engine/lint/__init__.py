"""Find doubtful parts of policies that compile.

Imports the other folders of the engine, and `cel`. Start with `doubts`.
"""
