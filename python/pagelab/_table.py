"""Tables of columns, which other libraries read as Arrow."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

Value = bool | int | float | str | None

_ARRAY_TYPES = {"uint64": "Q", "int64": "q", "float64": "d"}
#: Rows shown of each end of a table.
_SHOWN_ENDS = 5
_SHOWN_WIDTH = 24


class Column(Sequence[Value]):
    """One column of a table: a sequence of its values, None where one is missing.

    Attributes:
        name: its name.
        type: Arrow's name of its type: ``bool``, ``uint64``, ``int64``, ``float64`` or ``string``.
        unit: the unit of all its values, such as ``ps``, or None: a number without one, or one that another column names.
        about: what it holds, in words.
    """

    def __init__(self, described: dict[str, Any], rows: int) -> None:
        self.name: str = described["name"]
        self.type: str = described["type"]
        self.unit: str | None = described["unit"]
        self.about: str = described["about"]
        self._rows = rows
        self._runs: list[tuple[Value, int]] | None = described.get("runs")
        self._plain: list[Value] | None = described.get("values")

    @cached_property
    def values(self) -> list[Value]:
        """All values, as a list."""
        if self._plain is not None:
            return self._plain
        runs = (itertools.repeat(value, rows) for value, rows in self._runs or [])
        return list(itertools.chain.from_iterable(runs))

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, at: Any) -> Any:
        return self.values[at]

    def __iter__(self) -> Iterator[Value]:
        return iter(self.values)

    def __repr__(self) -> str:
        unit = f" in {self.unit}" if self.unit else ""
        return f"<Column {self.name!r}: {self._rows} of {self.type}{unit}; {self.about}>"

    def _schema(self) -> Any:
        import nanoarrow as na

        types = {"bool": na.bool_(), "uint64": na.uint64(), "int64": na.int64(), "float64": na.float64()}
        kind = types.get(self.type) or (na.large_string() if self._is_large else na.string())
        metadata = {"about": self.about} | ({"unit": self.unit} if self.unit else {})
        return na.c_schema(kind).modify(name=self.name, metadata=metadata)

    def _pieces(self) -> Iterable[tuple[Value, int]]:
        """Values, each with how many rows in turn have it."""
        return self._runs if self._plain is None and self._runs is not None else zip(self.values, itertools.repeat(1))

    @cached_property
    def _is_large(self) -> bool:
        """Whether its texts are too long together for offsets of 32 bits."""
        if self.type != "string":
            return False
        return sum(4 * len(str(text)) * rows for text, rows in self._pieces()) >= 2**31

    def _array(self) -> Any:
        import nanoarrow as na

        missing = sum(rows for value, rows in self._pieces() if value is None)
        valid = _bits((value is not None, rows) for value, rows in self._pieces()) if missing else None
        if self.type == "string":
            buffers = [valid, *self._texts()]
        elif self.type == "bool":
            buffers = [valid, _bits((bool(value), rows) for value, rows in self._pieces())]
        else:
            buffers = [valid, self._numbers()]
        return na.c_array_from_buffers(self._schema(), self._rows, buffers, null_count=missing)

    def _numbers(self) -> array[Any]:
        code = _ARRAY_TYPES[self.type]
        numbers: array[Any] = array(code)
        if self._plain is not None:
            numbers.extend(0 if value is None else value for value in self._plain)
            return numbers
        for value, rows in self._pieces():
            one: array[Any] = array(code)
            one.append(0 if value is None else value)
            numbers.extend(one * rows)
        return numbers

    def _texts(self) -> tuple[array[int], bytes]:
        """Where each text ends, and all texts."""
        code = "q" if self._is_large else "i"
        ends, at, texts = array(code, [0]), 0, []
        for value, rows in self._pieces():
            text = b"" if value is None else str(value).encode()
            texts.append(text * rows)
            begin, at = at, at + len(text) * rows
            ends.extend(array(code, range(begin + len(text), at + 1, len(text))) if text else array(code, [at]) * rows)
        return ends, b"".join(texts)


class Table:
    """A table of a result.

    ``table["value"]`` is a `Column`, a sequence of Python values; ``for row in table.rows()`` gives dicts. As Arrow::

        polars.DataFrame(result.samples)
        samples = result.samples; duckdb.sql("select metric, avg(value) from samples group by metric")
        pandas.DataFrame.from_arrow(result.samples)     # pandas 3, with pyarrow beside it

    Fields of the Arrow schema have metadata ``unit`` and ``about``.
    """

    def __init__(self, described: dict[str, Any]) -> None:
        self.name: str = described["name"]
        self._rows: int = described["rows"]
        columns = (Column(column, self._rows) for column in described["columns"])
        self.columns: dict[str, Column] = {column.name: column for column in columns}

    def __len__(self) -> int:
        """The number of rows."""
        return self._rows

    def __getitem__(self, name: str) -> Column:
        try:
            return self.columns[name]
        except KeyError:
            raise KeyError(f"table {self.name} has no column {name!r}; it has {', '.join(self.columns)}") from None

    @property
    def units(self) -> dict[str, str]:
        """Units by name of the column, where all values of it have one."""
        return {column.name: column.unit for column in self.columns.values() if column.unit}

    def rows(self) -> Iterator[dict[str, Value]]:
        """Each row, by name of the column."""
        names = list(self.columns)
        for row in zip(*(column.values for column in self.columns.values())):
            yield dict(zip(names, row))

    def __arrow_c_schema__(self) -> object:
        return self._schema().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The table as an Arrow C stream of one batch (the Arrow PyCapsule interface)."""
        import nanoarrow as na
        from nanoarrow.c_array_stream import CArrayStream

        schema = self._schema()
        children = [column._array() for column in self.columns.values()]
        whole = na.c_array_from_buffers(schema, self._rows, [None], null_count=0, children=children)
        return CArrayStream.from_c_arrays([whole], schema, validate=False).__arrow_c_stream__(requested_schema)

    def _schema(self) -> Any:
        import nanoarrow as na

        fields = [column._schema() for column in self.columns.values()]
        empty = na.c_schema(na.struct([na.Schema(field) for field in fields]))
        return empty.modify(children=fields)

    def __repr__(self) -> str:
        """The first and the last rows, of columns that do not say the same in all of them."""
        shown = [column for column in self.columns.values() if self._rows < 2 or len(set(column.values)) > 1]
        heads = [f"{column.name} [{column.unit}]" if column.unit else column.name for column in shown]
        rows = [[_word(value) for value in row] for row in zip(*(self._ends(column) for column in shown))]
        widths = [max(map(len, column)) for column in zip(heads, *rows)]
        lines = [
            "  ".join(word.rjust(width) for word, width in zip(line, widths)).rstrip()
            for line in (heads, *rows)
        ]
        if self._rows > 2 * _SHOWN_ENDS:
            lines.insert(1 + _SHOWN_ENDS, "...")
        same = ", ".join(column.name for column in self.columns.values() if column not in shown)
        lines += [f"the same in all rows: {same}"] * bool(same)
        return "\n".join([f"{self.name}: {self._rows} rows, {len(self.columns)} columns", *lines])

    def _ends(self, column: Column) -> list[Value]:
        if self._rows <= 2 * _SHOWN_ENDS:
            return column.values
        return column.values[:_SHOWN_ENDS] + column.values[-_SHOWN_ENDS:]


def _word(value: Value) -> str:
    word = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return word if len(word) <= _SHOWN_WIDTH else word[: _SHOWN_WIDTH - 3] + "..."


def _bits(flags: Iterable[tuple[bool, int]]) -> bytes:
    """A bitmap of flags, each with how many rows in turn have it; the first one is in the lowest bit."""
    digits = "".join("01"[flag] * rows for flag, rows in flags)
    return int(digits[::-1], 2).to_bytes((len(digits) + 7) // 8, "little") if digits else b""
