"""The load generators, which run inside the client's process: when calls start, how they are timed and checked."""
