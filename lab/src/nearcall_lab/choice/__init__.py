"""Which mechanism for what: needs, the facts of each library, and stored numbers."""
