"""Measuring: one launch of one cell, what it used, and what it left behind."""
