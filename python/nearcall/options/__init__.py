"""The options that clients and servers have in common: their checks, their defaults, TLS, and who may come near.

Each check raises an error that names its option. What only one side can be told is in that side's room.
"""
