"""The table that `nearcall-lab demo` shows of its run: one row for each mechanism, one column for each kind of work."""
