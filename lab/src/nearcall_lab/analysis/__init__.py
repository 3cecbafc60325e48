"""Evaluation of results: quantiles with intervals, ratios, checks, and verdicts. It needs only stored results."""
