"""`nearcall-lab demo`: every mechanism beside its peers in a few minutes."""
