#!/usr/bin/env bash
# DuckDB 2.0.1 exports the dates and timestamps 'infinity' and '-infinity' to Arrow as the largest and the smallest number of their type
# but one, without a null: readers that compute a calendar date from them get another date, or raise an error as pyarrow 26.0.1 does.
#
# Setting: 'infinity' and '-infinity' as DATE and as TIMESTAMP, fetched as a table of Arrow.
# Seen: 2147483647 and -2147483647 days, 2^63 - 1 and -(2^63 - 1) microseconds, no nulls; OverflowError from to_pylist().
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q duckdb==2.0.1 pyarrow==26.0.1
cat >main.py <<'PYTHON'
import duckdb
import pyarrow as pa

query = "select v::date as d, v::timestamp as t from (values ('infinity'), ('-infinity')) as all_values(v)"
table = duckdb.sql(query).to_arrow_table()
print(table["d"].type, table["d"].cast(pa.int32()).to_pylist(), "nulls:", table["d"].null_count)
print(table["t"].type, table["t"].cast(pa.int64()).to_pylist(), "nulls:", table["t"].null_count)
for name in ["d", "t"]:
    try:
        print(name, table[name].to_pylist())
    except OverflowError as error:
        print(name, type(error).__name__)
PYTHON
venv/bin/python main.py | tee seen.txt
diff - seen.txt <<'SEEN'
date32[day] [2147483647, -2147483647] nulls: 0
timestamp[us] [9223372036854775807, -9223372036854775807] nulls: 0
d OverflowError
t OverflowError
SEEN
echo "as described"
