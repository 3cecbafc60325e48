"""Reports calls to Prometheus, to OpenTelemetry or to a log.

Each is an interceptor, and each works at clients and at servers, for threads and for event loops::

    nearcall.Server(Calculator(), url, interceptors=[nearcall.observe.prometheus()])
    nearcall.connect(url, Calculator, interceptors=[nearcall.observe.opentelemetry()])

They see a call from the moment when its arguments have been decoded. At a client it ends when its result, or the last
item of its stream, has arrived; at a server when that is sent, with the code that the client gets. They do not see
calls that the server refuses before; ``nearcall top`` counts these, too.
"""

from .logs import access_log
from .metrics import prometheus
from .page import prometheus_page
from .tracing import opentelemetry

__all__ = ["access_log", "opentelemetry", "prometheus", "prometheus_page"]
