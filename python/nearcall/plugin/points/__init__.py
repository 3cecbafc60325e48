"""The questions that a host asks its plugins, and what they may ask of it."""
