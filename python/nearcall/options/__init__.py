"""The options that clients and servers have in common: their checks, their defaults, TLS, and who may connect.

Each check raises an error that names its option. Options of one side only are in that side's room.
"""
