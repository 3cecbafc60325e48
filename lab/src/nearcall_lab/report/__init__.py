"""What a run looks like to a reader. Drawn from stored results alone."""
