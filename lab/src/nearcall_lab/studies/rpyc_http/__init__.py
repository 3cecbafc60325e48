"""The study that compares RPyC with HTTP."""
