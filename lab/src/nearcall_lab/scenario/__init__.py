"""What is measured: scenario files, and the cells that they describe."""
