"""A module with the interfaces of a service that is a class here, for ``nearcall stub MODULE:CLASS``."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Generator, Iterable
from typing import get_origin

from ..service.references import passed_with
from ..service.service import declared_above, declared_methods, plan_of
from ..service.signature import ReadMethod
from ..types.declared import declared, is_function, name_of
from ..types.hints import stream_of, unwrap
from .annotations import Annotations
from .module_text import CannotBeWritten, Interface, Method, Parameter, class_name, module_text

__all__ = ["interfaces_text"]

_GENERATORS = (Generator, AsyncGenerator)


def interfaces_text(cls: type, source: str, *, for_loop: bool) -> str:
    """The text of a module with the interface of a service, and those of the services whose objects it passes.

    Args:
        cls: The service's class, or one that implements it.
        source: How the command names it.
        for_loop: Whether the interfaces are for clients in event loops, or for threads.

    Raises:
        CannotBeWritten: no module can import one of its types, or objects are passed in a field of a value and have
            methods for clients of the other kind.
        TypeError: the class cannot be served.
    """
    writer = _Writer(for_loop, passed_with(plan_of(cls)).implemented)
    writer.name_of(declared_above(cls)[-1])
    return module_text(source, writer.annotations.modules, [], writer.write(), for_loop=for_loop)


class _Writer:
    def __init__(self, for_loop: bool, implemented: Iterable[type]) -> None:
        self._implemented = {each for cls in implemented for each in declared_above(cls)}
        """The services whose objects a client gives: its handlers yield, and have no stream that can be closed."""
        self.annotations = Annotations(self.name_of, for_loop=for_loop)
        self._for_loop = for_loop
        self._names: dict[type, str] = {}
        self._waiting: list[type] = []
        self._met: set[type] = set()
        """The services that the method's annotations name."""

    def name_of(self, cls: type) -> str:
        """The name of the interface of a service's class."""
        target = declared_above(cls)[-1]
        self._met.add(cls)
        if target not in self._names:
            taken = self._names.values()
            self._names[target] = class_name(target.__name__, taken, "Async" if self._for_loop else "")
            self._waiting.append(target)
        return self._names[target]

    def write(self) -> list[Interface]:
        """The interfaces of all services that are met, each after those that it extends."""
        written: dict[type, Interface] = {}
        while self._waiting:
            cls = self._waiting.pop(0)
            written[cls] = self._interface(cls)
        return [written[cls] for cls in sorted(written, key=lambda cls: len(declared_above(cls)))]

    def _interface(self, cls: type) -> Interface:
        above = declared_above(cls)[:-1]
        nearest = [base for base in above if not any(base is not other and base in other.__mro__ for other in above)]
        own = [read for owner, read in declared_methods(cls) if owner is cls]
        self.annotations.hidden = {read.name for read in own}
        return Interface(
            name=self._names[cls],
            service=name_of(cls),
            bases=[self.name_of(base) for base in nearest],
            errors=[self.annotations.name(error) for error in declared[cls].errors],
            methods=[self._method(cls, read) for read in own],
            doc=cls.__dict__.get("__doc__"),
        )

    def _method(self, cls: type, read: ReadMethod) -> Method:
        self._met = set()
        text = self.annotations.text
        parameters: list[Parameter] = []
        stream = ""
        for each in read.parameters:
            streamed = stream_of(each.annotation)
            stream = stream if streamed is None else each.name
            kind, default = each.kind, each.default
            parameters.append(
                Parameter(
                    each.name,
                    text(each.annotation if streamed is None else streamed.item),
                    None if default is inspect.Parameter.empty else self.annotations.default(default),
                    by_position=kind is not inspect.Parameter.KEYWORD_ONLY,
                    by_name=kind is not inspect.Parameter.POSITIONAL_ONLY,
                )
            )
        returned = stream_of(read.returns)
        marks = ["oneway"] * read.oneway
        marks += ["no_side_effects"] if read.no_side_effects else ["idempotent"] * read.idempotent
        returns = text(read.returns if returned is None else returned.item)
        self._check_fields(cls, read)
        streams_out = ""
        if returned is not None:
            streams_out = "Generator" if get_origin(unwrap(read.returns)) in _GENERATORS else "Iterator"
            streams_out = streams_out if cls in self._implemented else "Stream"
        return Method(read.name, parameters, stream, returns, streams_out, marks, read.doc)

    def _check_fields(self, cls: type, read: ReadMethod) -> None:
        """A field's type is in the service's own module, and stays as it is there."""
        plan = next(method for method in plan_of(cls).methods if method.name == read.name)
        for passed in {*plan.takes, *plan.gives} - self._met:
            if is_function(passed):
                continue  # a function is called in the colour of the side that has it
            wrong = [each.name for each in plan_of(passed).methods if each.handler_is_async != self._for_loop]
            if wrong:
                kinds = ("threads", "event loops") if self._for_loop else ("event loops", "threads")
                raise CannotBeWritten(
                    f"{read.full_name}() passes objects of {name_of(passed)} in a field of a value, and "
                    f"{passed.__name__}.{wrong[0]}() is for {kinds[0]}, not for {kinds[1]}: pass the objects as "
                    "arguments or results"
                )
