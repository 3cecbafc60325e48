"""Running a scenario: the processes of a launch, the order of the launches, and what is stored of each."""
