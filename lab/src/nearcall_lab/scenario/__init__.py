"""What is measured: scenario files, and the cells they resolve to."""
