"""Other programs that measure what the lab measures, so that each confirms the other's numbers."""
