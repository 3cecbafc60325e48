"""What the screen reader is made of."""
