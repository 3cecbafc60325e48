"""A directory of services: servers register under a name, with metadata, and clients connect by that name.

It is an ordinary service, which any server can serve beside others::

    nearcall.serve(nearcall.directory.MemoryDirectory(), "tcp://127.0.0.1:7100")

    nearcall.serve(Clock(), "tcp://127.0.0.1:0", register="directory+tcp://127.0.0.1:7100/clock?zone=eu")

    nearcall.connect("directory+tcp://127.0.0.1:7100/clock?zone=eu", Clock)

To look around in it, connect with its class, :class:`Directory`. ``docs/guide/directory.md`` says more.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .entries import Entry, Found
    from .memory import MemoryDirectory
    from .service import Directory
else:
    from ..lazy import lazily

    # A directory needs asyncio, which who asks one does without.
    __getattr__, __dir__ = lazily(
        __name__,
        {"entries": ["Entry", "Found"], "memory": ["MemoryDirectory"], "service": ["Directory"]},
    )

__all__ = ["Directory", "Entry", "Found", "MemoryDirectory"]
