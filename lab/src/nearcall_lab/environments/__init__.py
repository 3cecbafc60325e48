"""Environments of their own for mechanisms whose dependencies conflict with the others'."""
