#include "data/gather_rows.h"

#include <ATen/Parallel.h>
#include <ATen/ops/index_select.h>

#include <algorithm>
#include <cstring>

#include "kindling/base/error.h"

namespace kindling {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kSmallRow = 256;   // below, a row costs less than asking for it
constexpr std::size_t kAskedFor = 4096;  // of a row: the rest the processor asks for by itself
constexpr std::int64_t kRowsAhead = 2;
constexpr std::size_t kBytesOfAThread = 1 << 18;  // at least

void ask_for(const char* row, std::size_t size) {
  for (std::size_t at = 0; at < std::min(size, kAskedFor); at += kCacheLine) __builtin_prefetch(row + at);
}

}  // namespace

void gather_rows(const at::Tensor& from, const at::Tensor& rows, const at::Tensor& to) {
  const auto size = from.size(0) == 0 ? 0 : from.nbytes() / static_cast<std::size_t>(from.size(0));
  if (size < kSmallRow || !rows.is_contiguous()) {
    at::Tensor out = to;
    at::index_select_out(out, from, /*dim=*/0, rows);
    return;
  }
  const auto* const source = static_cast<const char*>(from.const_data_ptr());
  auto* const target = static_cast<char*>(to.mutable_data_ptr());
  const std::int64_t* const numbers = rows.const_data_ptr<std::int64_t>();
  const std::int64_t count = rows.size(0);
  for (std::int64_t i = 0; i < count; ++i)
    if (numbers[i] < 0 || numbers[i] >= from.size(0))
      throw DataError({.place = "TensorDataset::gather",
                       .found = "there is no sample " + std::to_string(numbers[i]),
                       .wanted = "numbers below " + std::to_string(from.size(0))});
  const auto row = [&](std::int64_t i) { return source + static_cast<std::size_t>(numbers[i]) * size; };
  at::parallel_for(0, count, std::max<std::int64_t>(1, static_cast<std::int64_t>(kBytesOfAThread / size)),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i) {
                       if (i + kRowsAhead < end) ask_for(row(i + kRowsAhead), size);
                       std::memcpy(target + static_cast<std::size_t>(i) * size, row(i), size);
                     }
                   });
}

}  // namespace kindling
