"""Whom to preempt so that a workload fits: the smallest, least important set of victims. Pure.

`targets` is what others ask. It searches by priority and nominal quota (`classical`) or by shares
(`fair`), which have the claim, the candidates and the trying out in common (`search`).

Imports `alloc`. Start with `targets`.
"""
