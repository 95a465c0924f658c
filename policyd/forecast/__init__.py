"""Forecasts of when pending workloads start, with an interval each. Pure.

Run times come from declared limits or from history, arrivals from history. The queue is simulated
many times with what may happen, and the results are corrected by what happened after earlier
forecasts. Imports `alloc` and `simulate`. Start with `starts`, which has the steps in order:

1. `run_times` and `arrivals`: what is remembered, in bounded memory; `memory` stores it.
2. `batches`: jobs that run alike.
3. `exact` simulates with the allocation core, from the queues as they are; `coarse` with quotas
   alone.
4. `correction`: how much wider, or later, earlier forecasts should have been.
"""
