#include "formats/arrays/stored_array.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error_kind.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// NumPy's names, and PyTorch's for the types that NumPy lacks.
constexpr std::pair<std::string_view, TensorType> kRawTypes[] = {
    {"uint8", TensorType::uint8},       {"int8", TensorType::int8},       {"int16", TensorType::int16},
    {"int32", TensorType::int32},       {"int64", TensorType::int64},     {"uint16", TensorType::uint16},
    {"uint32", TensorType::uint32},     {"uint64", TensorType::uint64},   {"float16", TensorType::float16},
    {"bfloat16", TensorType::bfloat16}, {"float32", TensorType::float32}, {"float64", TensorType::float64},
};

[[noreturn]] void refuse_samples(const std::string& key, const std::string& found,
                                 const std::string& wanted) {
  throw ConfigError(
      {.place = key,
       .found = found,
       .wanted = wanted,
       .remedy = "a raw file needs the type and shape of a sample, such as \"float32[3, 64, 64]\""});
}

TensorType raw_type_of(std::string_view name, const std::string& key) {
  std::vector<std::string> names;
  for (const auto& [known, type] : kRawTypes) {
    if (known == name) return type;
    names.emplace_back(known);
  }
  refuse_samples(key, "the type '" + one_line(std::string(name)) + "'", "one of " + list_names(names));
}

// Of the text between the brackets.
std::vector<std::int64_t> raw_shape_of(std::string_view text, const std::string& key) {
  std::vector<std::int64_t> shape;
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view size = text.substr(0, comma);
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), number);
    if (error != std::errc() || end != size.data() + size.size() || number < 1)
      refuse_samples(key, "the size '" + one_line(std::string(size)) + "'", "sizes of at least 1");
    shape.push_back(number);
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return shape;
}

}  // namespace

std::vector<StoredArray> stored_safetensors(const std::filesystem::path& path) {
  return with_errors_as<DataError>([&] {
    const SafetensorsFile file(path);
    std::vector<StoredArray> arrays;
    for (const TensorEntry& entry : file.index().tensors)
      arrays.push_back({.name = entry.name,
                        .type = entry.type,
                        .shape = entry.shape,
                        .begin = entry.begin,
                        .size_bytes = entry.end - entry.begin});
    return arrays;
  });
}

StoredArray stored_raw(const std::filesystem::path& path, const std::string& samples,
                       const std::string& key) {
  std::string text = samples;
  std::erase(text, ' ');
  const std::size_t bracket = std::min(text.find('['), text.size());
  if (bracket < text.size() && !text.ends_with(']'))
    refuse_samples(key, "'" + one_line(samples) + "' does not end with ]", "a shape in brackets");
  StoredArray array{.type = raw_type_of(std::string_view(text).substr(0, bracket), key)};
  if (bracket < text.size())
    array.shape = raw_shape_of(std::string_view(text).substr(bracket + 1, text.size() - bracket - 2), key);
  const std::optional<std::size_t> bytes = bytes_of(array.type, array.shape);
  if (!bytes) refuse_samples(key, "the shape has more values than any memory", "the shape of a sample");
  array.size_bytes = with_errors_as<DataError>([&] { return InputFile(path).size(); });
  if (array.size_bytes % *bytes != 0)
    throw DataError({.place = path.string(),
                     .found = "it has " + std::to_string(array.size_bytes) + " bytes",
                     .wanted = "a multiple of " + std::to_string(*bytes) + ", which a sample " +
                               one_line(samples) + " has",
                     .remedy = "check " + key + ", or copy the file again"});
  array.shape.insert(array.shape.begin(), static_cast<std::int64_t>(array.size_bytes / *bytes));
  return array;
}

}  // namespace kindling
