#pragma once

#include <cstdint>
#include <string>

#include "kindling/base/export.h"
#include "kindling/formats/table.h"

// The structures of the Arrow C data and stream interfaces, by their specification. Other libraries define
// the same with the same macros.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4
extern "C" {
// Describes a column, or a table with its columns as children.
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
// The values of a column, or of the columns of a batch of rows.
struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
// Gives the batches of a table, one after another.
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}
#endif

namespace kindling {

// Reads all batches of a stream, such as `__arrow_c_stream__()` of pyarrow, polars, DuckDB or pandas makes
// one, and releases it, also after an error. The values are copied.
// - Integers, floating-point numbers, decimals, times of day and durations are columns of numbers, the last
// two
//   in their unit. NaN is missing, as null is.
// - Texts, categories (each batch may have its own), booleans ("true", "false"), dates and timestamps are
//   columns of categories; the latter as texts of ISO 8601 in UTC, such as 2026-11-29T15:30:00.25Z, or
//   without Z if they have no time zone, as data.dates reads them.
// - `__index_level_0__`, which pandas adds, is the column without a name (Table::row_name).
// `place` is the table in messages. Throws DataError with the column for lists, structures, binary data and
// other types, for an infinite number, an integer of 64 bits beyond 2^53 (it is an
// id that float64 would change), and a date outside of the years 1 to 9999 with its row, for two columns with
// one name, and for an error of the stream.
KINDLING_API Table read_arrow(ArrowArrayStream* stream, const std::string& place = "the Arrow table");

}  // namespace kindling
