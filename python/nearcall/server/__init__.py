"""The serving side: servers, the processes they spread over, who answers whom, and what becomes of a handler's errors.

It knows services and calls, and no client.
"""
