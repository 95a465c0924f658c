"""What is recorded of decisions after the answer: shadows of policies, and reports.

Imports `engine`, `kube` and the code for reports. Start with `observing`.
"""
