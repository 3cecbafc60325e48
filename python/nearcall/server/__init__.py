"""The serving side: servers, their worker processes, the objects that answer clients, and health.

Of the clients it uses only what calls the objects that they pass.
"""
