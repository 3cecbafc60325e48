"""What results mean: quantiles with intervals, ratios, checks, and verdicts. Works from stored results alone."""
