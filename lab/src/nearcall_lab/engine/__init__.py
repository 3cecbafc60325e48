"""Running a scenario: which launch comes when, what happens to those that fail, and what is kept."""
