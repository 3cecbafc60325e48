"""What a plugin says of itself and may do: its description, its archive, its sandbox."""
