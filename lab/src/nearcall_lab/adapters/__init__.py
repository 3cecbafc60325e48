"""One file per mechanism.

Each imports its peer only inside `serve` and `connect`, so that a missing one costs nothing.
"""
