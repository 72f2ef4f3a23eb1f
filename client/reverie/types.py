"""Types that calls of several subjects return."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar, overload

import msgspec

_T = TypeVar("_T")


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a deletion: whether there was anything to delete. It is no error if there was nothing."""

    deleted: bool


class ListResult(msgspec.Struct, Generic[_T], frozen=True):
    """A result that is a list, perhaps with more about it: iterate over it, index it, or take its `len`.

    The items are its first field.
    """

    @property
    def _items(self) -> list[_T]:
        items: list[_T] = getattr(self, self.__struct_fields__[0])
        return items

    def __iter__(self) -> Iterator[_T]:
        """Iterate over the items."""
        return iter(self._items)

    def __len__(self) -> int:
        """Return the number of items."""
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> _T: ...
    @overload
    def __getitem__(self, index: slice) -> list[_T]: ...
    def __getitem__(self, index: int | slice) -> _T | list[_T]:
        """Return the item at an index, or those of a slice."""
        return self._items[index]
