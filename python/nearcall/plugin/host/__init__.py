"""The host of a program's plugins, for threads and for event loops."""
