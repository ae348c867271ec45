#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_set>

#include "base/error_kind.h"
#include "base/utf8.h"
#include "formats/pickle.h"
#include "formats/safetensors_layout.h"
#include "formats/zip_writer.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/formats/torch_file.h"

namespace kindling {
namespace {

// Instructions of a pickle, protocol 2.
std::string pickled_bytes(std::uint64_t number, std::size_t size) {
  std::string bytes;
  for (; size > 0; --size, number >>= 8) bytes += static_cast<char>(number & 0xff);
  return bytes;
}
std::string pickled_integer(std::int64_t number) {  // LONG1
  return "\x8a\x08" + pickled_bytes(static_cast<std::uint64_t>(number), 8);
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

std::vector<std::int64_t> strides_in_row_order(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * std::max<std::int64_t>(shape[i], 1);
  return strides;
}

// _rebuild_tensor_v2(storage, offset, sizes, strides, needs a gradient, hooks)
std::string pickled_tensor_of(const TensorToWrite& tensor, std::size_t storage) {
  const std::size_t values = tensor.size_bytes / size_of(tensor.type);
  const StorageName& type = *std::ranges::find(kStorageNames, tensor.type, &StorageName::type);
  return pickled_name(kRebuildTensor) + "((" + pickled_text("storage") + pickled_name(type.name) +
         pickled_text(std::to_string(storage)) + pickled_text("cpu") +
         pickled_integer(static_cast<std::int64_t>(values)) + "tQ" + pickled_integer(0) +
         pickled_tuple(tensor.shape) + pickled_tuple(strides_in_row_order(tensor.shape)) + "\x89" +
         pickled_name(kOrderedDict) + ")RtR";
}

void check_to_write(std::span<const TensorToWrite> tensors) {
  std::unordered_set<std::string_view> names;
  for (const TensorToWrite& tensor : tensors) {
    const auto refuse = [&](const std::string& found) {
      throw CheckpointError(
          {.place = "tensor " + json_string(tensor.name.substr(0, 100)) + " to be written", .found = found});
    };
    if (bytes_of(tensor.type, tensor.shape) != tensor.size_bytes)
      refuse("its size does not fit its type and shape");
    if (!names.insert(tensor.name).second) refuse("the name is taken already");
    if (!is_utf8(tensor.name)) refuse("its name is no valid UTF-8");
  }
}

}  // namespace

void write_torch_file(const std::filesystem::path& path, std::span<const TensorToWrite> tensors) {
  check_to_write(tensors);
  std::map<std::tuple<const void*, TensorType, std::size_t>, std::size_t> storages;
  std::vector<std::string_view> values;  // of each storage
  std::string pickle = "\x80\x02" + pickled_name(kOrderedDict) + ")R(";
  for (const TensorToWrite& tensor : tensors) {
    const auto [storage, is_new] =
        storages.try_emplace({tensor.data, tensor.type, tensor.size_bytes}, values.size());
    if (is_new) values.emplace_back(static_cast<const char*>(tensor.data), tensor.size_bytes);
    pickle += pickled_text(tensor.name) + pickled_tensor_of(tensor, storage->second);
  }
  pickle += "u.";
  ZipWriter archive;
  archive.add("archive/data.pkl", pickle);
  archive.add("archive/byteorder", "little");
  for (std::size_t i = 0; i < values.size(); ++i) archive.add("archive/data/" + std::to_string(i), values[i]);
  archive.add("archive/version", "3\n");
  with_errors_as<CheckpointError>([&] { write_file_atomically(path, archive.finish()); });
}

}  // namespace kindling
