"""What surrounds a call, at a client and at a server: deadline, metadata, context, session and interceptors.

All of it is the same in threads and in event loops. Nothing here uses the connection of either side.
"""
