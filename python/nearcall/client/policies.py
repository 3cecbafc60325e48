"""What holds for the calls of each method of a channel: how long they may take, whether they wait for a server, and
which are sent more than once. It is looked up when a client's method is made, and costs no call anything.
"""

from __future__ import annotations

from typing import NamedTuple

from .. import _core
from ..log import WARNING, log
from ..service.plan import UNARY, MethodPlan
from .hedge import Hedge
from .retry import Retry
from .service_config import MethodConfig, ServiceConfig

__all__ = ["MethodPolicy", "Policies"]


class MethodPolicy(NamedTuple):
    """What holds for the calls of one method."""

    timeout: float | None
    """Seconds for each call, in place of the client's timeout; ``None``: the client's."""
    wait_for_ready: bool
    """Whether they wait for a server."""
    retry: Retry | None
    """Which of them are sent once more when they have failed."""
    hedge: Hedge | None
    """When they are sent once more while the first is under way."""


class Policies:
    """The policies of a channel, and the budget that they share.

    Args:
        url: Where the server is, for the log.
        usual: What the channel's options say of all methods.
        config: What its service config says of some of them.
    """

    def __init__(self, url: str, usual: MethodPolicy, config: ServiceConfig | None) -> None:
        self._url = url
        self._usual = usual._replace(timeout=None)
        self._timeout = usual.timeout
        self._config = config
        self._told: set[str] = set()
        of_option = usual.retry or usual.hedge
        tokens = (of_option.max_tokens, of_option.token_ratio) if of_option is not None else None
        if config is not None and config.throttling is not None:
            tokens = config.throttling
        self.budget = _core.RetryBudget(*map(float, tokens)) if tokens is not None and tokens[0] > 0 else None

    def of(self, plan: MethodPlan) -> MethodPolicy:
        """What holds for a method. A service config's entry counts as a whole, and the options besides it."""
        usual = self._usual
        found = None if self._config is None else self._config.of(plan)
        if found is None:
            return usual
        name, entry = found
        if name[1]:
            self._check(plan, entry)
        times = [seconds for seconds in (self._timeout, entry.timeout) if seconds is not None]
        # Of gRPC's two timeouts the smaller counts. The other three are said by one of the two alone.
        return MethodPolicy(
            None if entry.timeout is None else min(times),
            entry.wait_for_ready or usual.wait_for_ready,
            entry.retry or usual.retry,
            entry.hedge or usual.hedge,
        )

    def _check(self, plan: MethodPlan, entry: MethodConfig) -> None:
        """Tells of a policy that names a method for which it cannot count."""
        if plan.full_name in self._told:
            return
        self._told.add(plan.full_name)
        field = "retryPolicy" if entry.retry is not None else "hedgingPolicy" if entry.hedge is not None else None
        if field is None:
            return
        why = None
        if not plan.idempotent:
            why = "it is not marked @nearcall.idempotent, so its calls are made once"
        elif entry.hedge is not None and plan.kind != UNARY:
            why = "only methods without streams are hedged"
        if why is not None:
            log(
                WARNING, f"the {field} for {plan.full_name} in the service config for {self._url} does not count: {why}"
            )
