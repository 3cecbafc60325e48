"""Stored results: one record per launch, one file per cell, and the run they belong to."""
