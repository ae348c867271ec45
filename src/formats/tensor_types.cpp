#include "formats/tensor_types.h"

#include <algorithm>
#include <limits>

namespace kindling {

static_assert(std::ranges::all_of(kTensorTypes,
                                  [](const TensorTypeRow& row) { return &row == &row_of(row.type); }));

std::size_t size_of(TensorType type) { return row_of(type).bytes; }

std::string_view name_of(TensorType type) { return row_of(type).safetensors; }

std::optional<std::size_t> bytes_of(TensorType type, std::span<const std::int64_t> shape) {
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  std::size_t total = size_of(type);
  bool is_empty = false;
  for (const std::int64_t size : shape) {
    if (size < 0) return std::nullopt;
    is_empty = is_empty || size == 0;
    // Checked for empty tensors too: their strides are products of their sizes.
    const auto factor = static_cast<std::size_t>(std::max<std::int64_t>(size, 1));
    if (total > kMost / factor) return std::nullopt;
    total *= factor;
  }
  return is_empty ? 0 : total;
}

}  // namespace kindling
