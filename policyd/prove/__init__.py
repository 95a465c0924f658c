"""Proofs about policies: equal, stricter, never denying, with a counterexample otherwise. Pure.

Expressions become formulas for the solver z3 (the extra `policyd[prove]`), which looks for an
object on which two policies differ. Imports `engine`, `cel`, `api` and `patch`. Start with
`questions`:

1. `world` has the unknown object, up to a bound of elements, with what `schemas` let it be.
2. `encoder` writes an expression as a formula, with `functions`, `comprehensions` and `patterns`.
3. `meanings` joins them to what a policy denies of `requests`, once for each of the `templates`.
4. `questions` asks the `solver`, and `examples` gives what it finds to the engine to confirm.
"""
