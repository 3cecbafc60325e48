"""Running a scenario: one launch of one cell, which launch comes when, and what is kept of it."""
