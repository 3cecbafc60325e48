"""gRPC's reflection: a server describes what it serves, for grpcurl, grpcui, Postman and similar tools.

Every server answers at its gRPC URLs, unless ``Server(reflection=False)``. It is a service like the user's:
interceptors are around it, so that a server which demands a token for calls demands it here as well.

:mod:`.asking` is for clients: it asks a server.

By the project's own description: https://github.com/grpc/grpc/blob/master/doc/server-reflection.md
"""

from .service import ReflectionRequest, ReflectionResponse, ServerReflection, ServerReflectionAlpha, reflection_of

__all__ = ["ReflectionRequest", "ReflectionResponse", "ServerReflection", "ServerReflectionAlpha", "reflection_of"]
