#include "kindling/formats/npz.h"

#include <algorithm>
#include <array>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "base/joined.h"
#include "base/utf8.h"
#include "formats/arrays/npy_header.h"
#include "formats/tensor_types.h"
#include "formats/zip/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_array(const std::string& name, const std::string& found, const std::string& wanted) {
  throw CheckpointError({.place = "write_npz, '" + name + "'", .found = found, .wanted = wanted});
}

void check_array(const TensorToWrite& tensor) {
  if (numpy_type_text(tensor.type).empty())
    refuse_array(tensor.name, "NumPy does not have the type " + std::string(name_of(tensor.type)),
                 "such as float32 or int64");
  std::size_t size = size_of(tensor.type);
  for (const std::int64_t dimension : tensor.shape) size *= static_cast<std::size_t>(dimension);
  if (size != tensor.size_bytes)
    refuse_array(tensor.name, std::to_string(tensor.size_bytes) + " bytes",
                 std::to_string(size) + " for the shape " + shape_text(tensor.shape));
}

// A text is its code points, four bytes each, with zeros up to the length of the longest one.
std::string npy_texts(std::span<const std::string> texts) {
  constexpr std::size_t kBytesPerCharacter = 4;
  const auto length_of = [](std::string_view text) {
    std::size_t length = 0;
    for_each_character(text, [&](const Utf8Character&, std::string_view) { ++length; });
    return length;
  };
  std::size_t longest = 1;
  for (const std::string& text : texts) longest = std::max(longest, length_of(text));
  std::string bytes =
      npy_header("<U" + std::to_string(longest), std::array{static_cast<std::int64_t>(texts.size())});
  const std::size_t begin = bytes.size(), width = longest * kBytesPerCharacter;
  bytes.resize(begin + texts.size() * width);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    char* at = bytes.data() + begin + i * width;
    for_each_character(texts[i], [&](const Utf8Character& character, std::string_view) {
      constexpr std::int32_t kReplacement = 0xFFFD;
      const std::int32_t code = character.bytes > 0 ? character.code : kReplacement;
      for (std::size_t byte = 0; byte < kBytesPerCharacter; ++byte)
        *at++ = static_cast<char>(code >> (8 * byte) & 0xff);
    });
  }
  return bytes;
}

}  // namespace

void write_npz(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
               std::span<const TextsToWrite> texts) {
  ZipWriter archive;
  std::deque<std::string> arrays;  // borrowed by the archive
  std::set<std::string_view> names;
  const auto add = [&](const std::string& name, std::string bytes) {
    if (name.empty() || name.find('/') != std::string::npos)
      refuse_array(name, "the name is empty or contains '/'", "a name that can be a file name");
    if (!names.insert(name).second) refuse_array(name, "two arrays have this name", "one array");
    archive.add(name + ".npy", arrays.emplace_back(std::move(bytes)));
  };
  for (const TensorToWrite& tensor : tensors) {
    check_array(tensor);
    std::string bytes = npy_header(numpy_type_text(tensor.type), tensor.shape);
    if (tensor.size_bytes > 0) bytes.append(static_cast<const char*>(tensor.data), tensor.size_bytes);
    add(tensor.name, std::move(bytes));
  }
  for (const TextsToWrite& list : texts) add(list.name, npy_texts(list.texts));
  write_file_atomically(path, archive.finish());
}

}  // namespace kindling
