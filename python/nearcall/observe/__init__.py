"""What happens to calls, told to others: Prometheus, OpenTelemetry, a log.

Each is an interceptor, and each works at clients and at servers, for threads and for event loops::

    nearcall.Server(Calculator(), url, interceptors=[nearcall.observe.prometheus()])
    nearcall.connect(url, Calculator, interceptors=[nearcall.observe.opentelemetry()])

They see a call from when its arguments have been decoded until its result, or the last item of its stream, is there. A
call that the server refuses before, or whose result cannot be encoded, they do not see, or see as a success;
``nearcall top`` counts it as it ended.
"""

from .logs import access_log
from .metrics import prometheus
from .tracing import opentelemetry

__all__ = ["access_log", "opentelemetry", "prometheus"]
