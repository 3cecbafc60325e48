"""gRPC's `service config <https://github.com/grpc/grpc/blob/master/doc/service_config.md>`_, read as the options that
say the same here.

As gRPC wants it, fields that nobody knows are skipped, and a known field with a wrong value refuses the whole config. A
field that is right and has no counterpart here is named in the log.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from ..codec.protobuf.names import camel_case
from ..errors import InvalidArgument
from ..log import WARNING, log
from ..options.checked import with_option
from ..service.plan import MethodPlan
from ..status import StatusCode
from ..types.guards import is_dict, is_list
from .hedge import Hedge
from .retry import Retry

__all__ = ["MethodConfig", "ServiceConfig", "read_service_config"]

_OPTION: Final = "service_config"
_DURATION: Final = re.compile(r"(\d{1,12})(?:\.(\d{1,9}))?s")
_MOST_ATTEMPTS: Final = 5
"""gRPC makes no more attempts, whatever a config says."""

T = TypeVar("T")


class MethodConfig(NamedTuple):
    """What an entry of ``methodConfig`` says."""

    timeout: float | None
    """Seconds that each call may take; ``None``: nothing is said."""
    wait_for_ready: bool
    retry: Retry | None
    hedge: Hedge | None


Name: TypeAlias = "tuple[str, str]"
"""The full name of a service, and the name of a method in CamelCase; an empty name stands for all."""


class ServiceConfig(NamedTuple):
    """What a service config says."""

    options: dict[str, Any]
    """Options of the channel: ``balancing`` and ``max_message_size``, as far as it says anything of them."""
    said: frozenset[str]
    """The names of all options that it says something of, for the channel or for single methods."""
    methods: Mapping[Name, MethodConfig]
    """What it says of methods."""
    throttling: tuple[float, float] | None
    """Tokens of the budget for what is sent again, and tokens that a success brings back."""

    def of(self, plan: MethodPlan) -> tuple[Name, MethodConfig] | None:
        """The entry that counts for a method, as a whole: that of the method, else of its service, else of all."""
        service, method = plan.full_name.rpartition(".")[0], camel_case(plan.name)
        for name in ((service, method), (service, ""), ("", "")):
            if (found := self.methods.get(name)) is not None:
                return name, found
        return None

    @property
    def waits(self) -> bool:
        """Whether calls wait for a server if nothing else is said of their method."""
        return ("", "") in self.methods and self.methods["", ""].wait_for_ready


def read_service_config(given: object, url: str) -> ServiceConfig:
    """The option ``service_config``.

    Args:
        given: JSON, or what it is in Python.
        url: Where the server is, for the log.

    Raises:
        InvalidArgument: it is no JSON, or a field is wrong; the message says which.
    """
    if isinstance(given, (str, bytes)):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise _wrong(f"{_OPTION} is no JSON: {error}") from None
    config = _Part(given, _OPTION).as_dict()
    methods = [_read_method(part) for part in config.get("methodConfig").as_list()]
    options: dict[str, Any] = {}
    said: set[str] = set()
    unsaid: list[str] = []
    by_name: dict[Name, MethodConfig] = {}
    for method in methods:
        for name in method.names:
            if name in by_name:
                raise _wrong(f"{method.where}: {'/'.join(filter(None, name)) or 'the default'} has a config twice")
            by_name[name] = method.config
        unsaid += method.unsaid
        if method.config.retry is not None or method.config.hedge is not None:
            said |= {"retry", "hedge"}
        if method.config.wait_for_ready:
            said.add("wait_for_ready")
    longest = {method.longest for method in methods} - {None}
    if longest:
        options["max_message_size"] = max(each for each in longest if each is not None)
        if len(longest) > 1:
            unsaid.append("maxResponseMessageBytes of single methods: the greatest counts")
    if longest and not any(("", "") in method.names for method in methods if method.longest is not None):
        unsaid.append("maxResponseMessageBytes of some methods: it counts for the whole channel")
    if (balancing := _balancing(config)) is not None:
        options["balancing"] = balancing
    if config.get("healthCheckConfig").value is not None:
        unsaid.append("healthCheckConfig: a server that cannot be reached is left out, and health is not asked for")
    for each in unsaid:
        log(WARNING, f"the service config for {url} says what has no counterpart: {each}")
    throttling = config.get("retryThrottling").maybe(_read_throttling)
    return ServiceConfig(options, frozenset(said | options.keys()), by_name, throttling)


class _Method(NamedTuple):
    """One entry of ``methodConfig``, as it was read."""

    where: str
    names: list[tuple[str, str]]
    config: MethodConfig
    longest: int | None
    unsaid: list[str]


class _Part(NamedTuple):
    """A value of the config, and where it stands."""

    value: Any
    where: str

    def as_dict(self) -> _Dict:
        if not is_dict(self.value):
            raise _wrong(f"{self.where} must be an object, not {self.value!r}")
        return _Dict(self.value, self.where)

    def as_list(self) -> list[_Part]:
        if self.value is None:
            return []
        if not is_list(self.value):
            raise _wrong(f"{self.where} must be a list, not {self.value!r}")
        return [_Part(value, f"{self.where}[{index}]") for index, value in enumerate(self.value)]

    def maybe(self, read: Callable[[_Part], T]) -> T | None:
        return None if self.value is None else read(self)


class _Dict(NamedTuple):
    value: Mapping[str, Any]
    where: str

    def get(self, name: str) -> _Part:
        return _Part(self.value.get(name), f"{self.where}.{name}")


def _read_method(part: _Part) -> _Method:
    entry = part.as_dict()
    names: list[tuple[str, str]] = []
    for each in entry.get("name").as_list():
        name = each.as_dict()
        service = name.get("service").maybe(_text) or ""
        # As gRPC writes it, or as Python does.
        method = camel_case(name.get("method").maybe(_text) or "")
        if method and not service:
            raise _wrong(f"{each.where} names a method without a service")
        if (service, method) in names:
            raise _wrong(f"{each.where} is there twice")
        names.append((service, method))
    unsaid: list[str] = []
    if entry.get("maxRequestMessageBytes").maybe(_count) is not None:
        unsaid.append("maxRequestMessageBytes: the server says what is too long")
    retry, hedge = entry.get("retryPolicy").maybe(_read_retry), entry.get("hedgingPolicy").maybe(_read_hedge)
    if retry is not None and hedge is not None:
        raise _wrong(f"{entry.where} has a retryPolicy and a hedgingPolicy: one of them at most")
    return _Method(
        entry.where,
        names,
        MethodConfig(
            entry.get("timeout").maybe(_seconds), entry.get("waitForReady").maybe(_flag) or False, retry, hedge
        ),
        entry.get("maxResponseMessageBytes").maybe(_count),
        unsaid,
    )


def _read_retry(part: _Part) -> Retry:
    policy = part.as_dict()
    multiplier = _number(_needed(policy, "backoffMultiplier"))
    if multiplier < 1:
        raise _wrong(
            f"{policy.where}.backoffMultiplier must be 1 or more here, not {multiplier:g}: pauses do not shrink"
        )
    return _checked(
        part,
        lambda: Retry(
            attempts=_attempts(_needed(policy, "maxAttempts")),
            initial_backoff=_positive(_needed(policy, "initialBackoff")),
            max_backoff=_positive(_needed(policy, "maxBackoff")),
            multiplier=multiplier,
            codes=_codes(_needed(policy, "retryableStatusCodes")),
            max_tokens=0.0,
        ),
    )


def _read_hedge(part: _Part) -> Hedge:
    policy = part.as_dict()
    codes = policy.get("nonFatalStatusCodes").maybe(_codes) or [StatusCode.UNAVAILABLE]
    delay = policy.get("hedgingDelay").maybe(_seconds) or 0.0
    attempts = _attempts(_needed(policy, "maxAttempts"))
    return _checked(part, lambda: Hedge(delay, attempts=attempts, codes=codes, max_tokens=0.0))


def _read_throttling(part: _Part) -> tuple[float, float]:
    throttling = part.as_dict()
    tokens, ratio = _number(_needed(throttling, "maxTokens")), _number(_needed(throttling, "tokenRatio"))
    if not 0 < tokens <= 1000:
        raise _wrong(f"{throttling.where}.maxTokens must be more than 0 and at most 1000, not {tokens:g}")
    if ratio <= 0:
        raise _wrong(f"{throttling.where}.tokenRatio must be more than 0, not {ratio:g}")
    return tokens, max(ratio, 0.001)


def _balancing(config: _Dict) -> str | None:
    listed = config.get("loadBalancingConfig").as_list()
    for part in listed:
        policies = part.as_dict()
        if len(policies.value) != 1:
            raise _wrong(f"{part.where} must name one policy")
        (name,) = policies.value
        if name in ("pick_first", "round_robin"):
            return name
    if listed:
        raise _wrong(
            f"{config.where}.loadBalancingConfig names no policy that is known here: pick_first and round_robin are"
        )
    old = config.get("loadBalancingPolicy").maybe(_text)
    if old is not None and old.lower() not in ("pick_first", "round_robin"):
        raise _wrong(f"{config.where}.loadBalancingPolicy must be pick_first or round_robin here, not {old!r}")
    return None if old is None else old.lower()


def _needed(entry: _Dict, name: str) -> _Part:
    part = entry.get(name)
    if part.value is None:
        raise _wrong(f"{part.where} is missing")
    return part


def _text(part: _Part) -> str:
    if not isinstance(part.value, str):
        raise _wrong(f"{part.where} must be a text, not {part.value!r}")
    return part.value


def _flag(part: _Part) -> bool:
    if not isinstance(part.value, bool):
        raise _wrong(f"{part.where} must be true or false, not {part.value!r}")
    return part.value


def _number(part: _Part) -> float:
    if isinstance(part.value, bool) or not isinstance(part.value, (int, float)):
        raise _wrong(f"{part.where} must be a number, not {part.value!r}")
    return float(part.value)


def _count(part: _Part) -> int:
    text = str(part.value)
    if isinstance(part.value, (bool, float)) or not text.isascii() or not text.isdigit() or int(text) == 0:
        raise _wrong(f"{part.where} must be a whole number from 1, not {part.value!r}")
    return int(text)


def _attempts(part: _Part) -> int:
    count = _count(part)
    if count < 2:
        raise _wrong(f"{part.where} must be at least 2, not {part.value!r}")
    return min(count, _MOST_ATTEMPTS)


def _seconds(part: _Part) -> float:
    found = _DURATION.fullmatch(part.value) if isinstance(part.value, str) else None
    if found is None:
        raise _wrong(f'{part.where} must be a duration such as "1.5s", not {part.value!r}')
    return float(part.value[:-1])


def _positive(part: _Part) -> float:
    seconds = _seconds(part)
    if seconds == 0:
        raise _wrong(f"{part.where} must be more than 0")
    return seconds


def _codes(part: _Part) -> list[StatusCode]:
    codes: list[StatusCode] = []
    for each in part.as_list():
        by_name = StatusCode.__members__.get(each.value.upper()) if isinstance(each.value, str) else None
        number = each.value if isinstance(each.value, int) and not isinstance(each.value, bool) else -1
        code = by_name if by_name is not None else next((code for code in StatusCode if code == number), None)
        if code is None or code is StatusCode.OK:
            raise _wrong(f"{each.where} must be the status of a failure, such as UNAVAILABLE, not {each.value!r}")
        codes.append(code)
    if not codes:
        raise _wrong(f"{part.where} must name a status")
    return codes


def _checked(part: _Part, make: Callable[[], T]) -> T:
    try:
        return make()
    except InvalidArgument as error:
        raise error if error.option == _OPTION else _wrong(f"{part.where}: {error.message}") from None


def _wrong(text: str) -> InvalidArgument:
    return with_option(InvalidArgument(text), _OPTION)
