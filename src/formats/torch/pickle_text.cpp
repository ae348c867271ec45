#include "formats/pickle_text.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "formats/pickle.h"

namespace kindling {
namespace {

std::string pickled_bytes(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8) bytes += static_cast<char>(number & 0xff);
  return bytes;
}

std::vector<std::int64_t> strides_in_row_order(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

}  // namespace

std::string pickled_integer(std::int64_t number) {  // LONG1
  return "\x8a\x08" + pickled_bytes(static_cast<std::uint64_t>(number), 8);
}
std::string pickled_real(double number) {  // BINFLOAT, the only one whose highest byte comes first
  std::string bytes = pickled_bytes(std::bit_cast<std::uint64_t>(number), 8);
  std::ranges::reverse(bytes);
  return "G" + bytes;
}
std::string pickled_text(std::string_view text) {  // BINUNICODE
  return "X" + pickled_bytes(text.size(), 4) + std::string(text);
}
std::string pickled_name(std::string_view module_and_name) {  // GLOBAL
  std::string lines(module_and_name);
  std::ranges::replace(lines, ' ', '\n');
  return "c" + lines + "\n";
}
std::string pickled_tuple(std::span<const std::int64_t> numbers) {
  std::string items = "(";
  for (const std::int64_t number : numbers) items += pickled_integer(number);
  return items + "t";
}

std::string pickled_tensor_of(const TensorToWrite& tensor, std::size_t storage) {
  const std::size_t values = tensor.size_bytes / size_of(tensor.type);
  const StorageName& type = *std::ranges::find(kStorageNames, tensor.type, &StorageName::type);
  return pickled_name(kRebuildTensor) + "((" + pickled_text("storage") + pickled_name(type.name) +
         pickled_text(std::to_string(storage)) + pickled_text("cpu") +
         pickled_integer(static_cast<std::int64_t>(values)) + "tQ" + pickled_integer(0) +
         pickled_tuple(tensor.shape) + pickled_tuple(strides_in_row_order(tensor.shape)) + "\x89" +
         pickled_name(kOrderedDict) + ")RtR";
}

}  // namespace kindling
