"""What is doubtful about policies that compile.

Imports the other folders of the engine, and `cel`. Start with `doubts`.
"""
