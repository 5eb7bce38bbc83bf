"""Attributes that are worked out when they are first asked for: those of functools take a lock until Python
3.12, which is most of what they cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:  # noqa: N801 - it stands for that of functools
        """A method without arguments whose first result takes its place among the attributes of an object."""

        def __init__(self, method):
            self._method, self.__doc__ = method, method.__doc__

        def __set_name__(self, _owner, name):
            self._name = name

        def __get__(self, instance, _owner=None):
            if instance is None:
                return self
            found = instance.__dict__[self._name] = self._method(instance)
            return found


__all__ = ["cached_property"]
