"""What runs in a plugin's own process, and what its code calls."""
