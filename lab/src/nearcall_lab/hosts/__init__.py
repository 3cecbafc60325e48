"""Servers on a second machine, which is reached by OpenSSH's own client."""
