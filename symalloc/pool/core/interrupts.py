"""Carrying what is no Exception, such as KeyboardInterrupt, from a callback through native code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from itertools import count
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
Answer = TypeVar("Answer")

_carried: dict[str, BaseException] = {}
_tickets = count(1)


class CallbackInterruptError(Exception):
    """The carrier that tvm-ffi takes in place of an error that it does not know, and turns back into it.

    Native code sees the name of this class and a ticket.  Called with the ticket, the class makes the error
    that was handed in.
    """

    def __new__(cls, ticket: str) -> BaseException:  # type: ignore[misc]
        """The error that was handed in for `ticket`."""
        return _carried.pop(ticket)

    @classmethod
    def carry(cls, error: BaseException) -> CallbackInterruptError:
        """Hand `error` in."""
        ticket = str(next(_tickets))
        _carried[ticket] = error
        carrier = Exception.__new__(cls, ticket)
        carrier.args = (ticket,)
        return carrier


def deliver_interrupt(ticket: str) -> bool:
    """Take what was handed in for `ticket` where it cannot be raised: native code is in a destructor.

    True where it is KeyboardInterrupt: native code has it come in the main thread then, as if Ctrl-C had been
    pressed now.  Anything else is printed.
    """
    error = _carried.pop(ticket)
    if isinstance(error, KeyboardInterrupt):
        return True
    print("symalloc: a callback that the end of a tensor has called raised:", file=sys.stderr)
    traceback.print_exception(error)
    return False


def carrying_interrupts(callback: Callable[P, Answer]) -> Callable[P, Answer]:
    """`callback`, but what it raises beside Exceptions comes out of the native call that has called it."""

    def call(*args: P.args, **named: P.kwargs) -> Answer:
        try:
            return callback(*args, **named)
        except Exception:
            raise
        except BaseException as error:
            raise CallbackInterruptError.carry(error) from None

    return call
