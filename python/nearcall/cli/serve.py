"""``nearcall serve module:Class URL...``"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, cast

import nearcall

from ..log import WARNING, log
from ..server.instances import is_made_per_client
from ..server.listening import OF_LISTENERS
from ..server.serve import serve_alone, serve_with_workers
from ..service.service import is_service
from . import UsageError
from .finding import find, is_url, where_in_code
from .flags import server_functions, server_options
from .service_manager import ServiceManager, passed_sockets
from .settings import add_setting_flags, read_settings

__all__ = ["add_to", "load", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "serve",
        usage="nearcall serve [options] [MODULE:CLASS ...] [URL ...]",
        help="serve a class at one or more URLs",
        description="Serve a class at one or more URLs until interrupted. Each option can also be set in the "
        "environment, as NEARCALL_SERVE_MAX_PENDING=100, or in a file, as max_pending = 100 under [serve].",
        epilog="example: nearcall serve calculator:Calculator shm://calc tcp://127.0.0.1:7000",
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="MODULE:CLASS | URL",
        help="the classes to serve (or objects, or functions that make them), then the URLs to serve them at; what is "
        "left out is looked for in the environment and in the file",
    )
    parser.add_argument(
        "--reload",
        action="store_true",
        help="serve anew when a file has changed; for development, see nearcall[reload]",
    )
    add_setting_flags(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Serves until interrupted."""
    if options.reload:
        from .reloading import serve_anew

        serve_anew(options, run)
        return
    settings = read_settings(options)
    values = settings.values
    options.sources = settings.sources  # for messages about options that the library refuses
    if (level := values.get("log_level", "info" if values.get("access_log") else None)) is not None:
        import logging

        # Before the services are imported: basicConfig() does nothing if one of them has set up logging.
        logging.basicConfig(level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    urls = [item for item in options.what if is_url(item)] or values.get("urls", [])
    targets = [item for item in options.what if not is_url(item)] or values.get("services", [])
    _check_urls(targets)
    if not targets:
        raise UsageError("what is to be served? write MODULE:CLASS before the URLs, for example calculator:Calculator")
    if not urls:
        raise UsageError("where is it to be served? write a URL such as shm://name or tcp://127.0.0.1:7000")
    chosen = server_options(values)
    manager = ServiceManager()
    if sockets := passed_sockets():
        chosen["sockets"] = sockets
    functions = server_functions(settings, find)
    workers = chosen.get("workers")
    crew = "" if workers is None else f" with {workers} worker{'' if workers == 1 else 's'}"
    # The log says it as well. With workers this line alone says that all of them are there.
    told = workers is None and level in ("debug", "info")

    def tell(server: nearcall.Server | nearcall.Workers) -> None:
        for url in () if told else server.urls:
            if url == "stdio:":
                continue  # who started this has its only client
            print(f"serving {', '.join(targets)} at {url}{crew}", file=sys.stderr, flush=True)
        manager.ready()

    # Each worker imports the modules itself: threads that a module starts when it is imported would not survive a fork.
    makers = [partial(load, target) for target in targets]
    try:
        if workers is None:
            served = (*(make() for make in makers), *urls)
            serve_alone(served, on_ready=tell, on_stopping=manager.stopping, **chosen, **functions())
        else:
            serve_with_workers(
                (*makers, *urls),
                on_ready=tell,
                late_options=functions,
                refresh=partial(_refresh, options, urls, chosen),
                on_stopping=manager.stopping,
                on_reloading=manager.reloading,
                **chosen,
            )
    except ValueError as error:  # a URL or an option is wrong: errors of handlers go to their callers
        raise UsageError(str(error)) from error


def _refresh(
    options: argparse.Namespace, urls: list[str], first: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], Callable[[], dict[str, Any]]]:
    """Reads the settings again, for workers that begin now."""
    settings = read_settings(options)
    values = settings.values
    targets = [item for item in options.what if not is_url(item)] or values.get("services", [])
    chosen = server_options(values)
    _check_urls(targets)
    if not targets:
        raise UsageError("there is nothing to serve any more")
    now = [item for item in options.what if is_url(item)] or values.get("urls", [])
    changed = [
        name
        for name in ("workers", *OF_LISTENERS)
        if name not in ("tls", "sockets") and chosen.get(name) != first.get(name)
    ]
    if now != urls or changed:
        names = ", ".join([*(["urls"] if now != urls else []), *changed])
        log(WARNING, "what has changed here needs a restart, and stays as it is: %s", names)
    chosen.pop("workers", None)
    return [partial(load, target) for target in targets], chosen, server_functions(settings, find)


def load(target: str) -> object:
    """The object that ``module:name`` stands for; a class is instantiated, a function called. A class or function that
    makes an object for each client is returned as it is.

    Raises:
        UsageError: the module cannot be imported, has no such name, or the name is no service.
    """
    found: Any = find(target)
    if is_made_per_client(found):
        return cast("object", found)
    if inspect.isclass(found) or inspect.isfunction(found):
        found = _make(target, found)
    served: object = found
    if not is_service(type(served)):
        raise UsageError(f"{target} is not a service: decorate its class with @nearcall.service")
    return served


def _make(target: str, factory: Any) -> Any:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise UsageError(
            f"{target} cannot be called without arguments ({error}): name a function that makes the object instead"
        ) from None
    except ValueError:
        pass  # a class written in C has no signature to look at
    try:
        return factory()
    except Exception as error:
        raise UsageError(f"{target}() failed: {type(error).__name__}: {error}{where_in_code(error)}") from error


def _check_urls(targets: Iterable[str]) -> None:
    """Refuses what is meant as a URL, and none."""
    for target in targets:
        if found := re.match(r"([a-z][a-z+]*):/", target):
            raise UsageError(f"'{target}' is no URL: write {found[1]}://{target[found.end() :].lstrip('/')}")
