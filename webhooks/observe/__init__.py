"""Records of decisions, after the answer: metrics, shadows of policies, and reports.

Imports `admission`, `engine`, `registration`, `kube` and the code for reports. Start with
`observing`.
"""
