"""Calls the service through nginx: `python call_it.py grpcs://127.0.0.1:8443`, or `https://...`."""

from __future__ import annotations

import sys

from sums import Calculator

import nearcall

with nearcall.connect(sys.argv[1], Calculator, tls=nearcall.TLS(ca="certs/ca.pem")) as calc:
    print(calc.add(1, 2), list(calc.countdown(3)))
