"""The methods of channels that generated stubs use, for threads and for event loops."""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = ["StubMethods"]


class StubMethods:
    """The four methods by which stubs get their callables. A channel sets the classes of these callables."""

    _one_response: ClassVar[type[Any]]
    """The class of callables with one response; takes channel, path, whether requests stream, serializer,
    deserializer.
    """
    _many_responses: ClassVar[type[Any]]
    """The same for callables with a stream of responses."""

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: object = None,
    ) -> Any:
        """The callable of a method without streams."""
        return self._one_response(self, method, False, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: object = None,
    ) -> Any:
        """The callable of a method with a stream of responses."""
        return self._many_responses(self, method, False, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: object = None,
    ) -> Any:
        """The callable of a method with a stream of requests."""
        return self._one_response(self, method, True, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: object = None,
    ) -> Any:
        """The callable of a method with streams both ways."""
        return self._many_responses(self, method, True, request_serializer, response_deserializer)
