"""Running a scenario: the processes of a launch, which launch comes when, and what is kept of it."""
