"""What can go wrong, and what the caller sees of it.

    python examples/errors.py serve
    python examples/errors.py

It prints::

    NotFound: no account 'nobody' {'name': 'nobody'}
    LookupError works, too: no account 'nobody'
    FAILED_PRECONDITION: 'ada' has 100, not 500
    Unknown: KeyError: 'nobody'
    InvalidArgument: Bank.withdraw(): argument 'amount' must be int, got str
    InvalidArgument: Bank.withdraw(): argument 'amount' is missing; it is withdraw(name: str, amount: int) -> int
    DeadlineExceeded after less than a second
    the server is alive: 100
    Unavailable: nobody there
"""

import sys
import time
from typing import Any, cast

import nearcall

URL = "shm://example-errors"


@nearcall.service
class Bank:
    def __init__(self) -> None:
        self._accounts = {"ada": 100}

    def balance(self, name: str) -> int:
        if name not in self._accounts:
            raise nearcall.NotFound(f"no account '{name}'", details={"name": name})
        return self._accounts[name]

    def withdraw(self, name: str, amount: int) -> int:
        balance = self.balance(name)
        if amount > balance:
            raise nearcall.FailedPrecondition(f"'{name}' has {balance}, not {amount}")
        self._accounts[name] -= amount
        return self._accounts[name]

    def share(self, name: str, among: int) -> int:
        return self._accounts[name] // among

    def audit(self) -> None:
        time.sleep(1)


def main() -> None:
    with nearcall.connect(URL, Bank) as bank:
        try:
            bank.balance("nobody")
        except nearcall.NotFound as error:
            print(f"NotFound: {error.message} {error.details}")
        try:
            bank.balance("nobody")
        except LookupError as error:  # where Python has an exception of that meaning, it is one of those as well
            print("LookupError works, too:", error)
        try:
            bank.withdraw("ada", 500)
        except nearcall.RpcError as error:  # all of them
            print(f"{error.code.name}: {error.message}")
        try:
            bank.share("nobody", 2)  # an ordinary exception in the handler
        except nearcall.Unknown as error:
            print("Unknown:", error)
        wrong = cast(Any, bank)  # what a type checker would not let pass
        for arguments in (("ada", "ten"), ("ada",)):
            try:
                wrong.withdraw(*arguments)
            except nearcall.InvalidArgument as error:
                print("InvalidArgument:", error)
        begun = time.monotonic()
        try:
            with nearcall.timeout(0.1):
                bank.audit()
        except nearcall.DeadlineExceeded:
            print("DeadlineExceeded after", "less than a second" if time.monotonic() - begun < 1 else "too long")
        print("the server is alive:", bank.balance("ada"))
    try:
        nearcall.connect("shm://example-nobody", Bank)
    except nearcall.Unavailable:
        print("Unavailable: nobody there")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Bank(), URL)
    else:
        main()
