"""The serving side: servers, the processes they spread over, who answers whom, and what becomes of a handler's errors.

Of the clients it uses only what calls the objects that they pass.
"""
