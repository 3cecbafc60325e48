"""What this machine brings, and what it lacks."""
