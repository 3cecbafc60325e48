"""Other programs that measure what the lab measures, so that neither need be believed alone."""
