#include "kindling/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "formats/safetensors/safetensors_layout.h"
#include "formats/tensor_types.h"
#include "kindling/base/checksum.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors is little-endian, and only little-endian machines are supported");

[[noreturn]] void refuse_to_write(const std::string& name, const std::string& found,
                                  const std::string& wanted = "") {
  throw CheckpointError({.place = "tensor " + json_string(name.substr(0, 100)) + " to be written",
                         .found = found,
                         .wanted = wanted});
}

// The JSON library throws for text that is not UTF-8, which other readers could not read.
std::string quoted(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    refuse_to_write(text, "a name or text is not valid UTF-8");
  }
}

std::vector<const TensorToWrite*> in_file_order(std::span<const TensorToWrite> tensors) {
  std::unordered_set<std::string_view> names = {kMetadataKey};
  std::vector<const TensorToWrite*> order;
  for (const TensorToWrite& tensor : tensors) {
    const std::optional<std::size_t> wanted = bytes_of(tensor.type, tensor.shape);
    if (!wanted) refuse_to_write(tensor.name, "its shape is negative or overflows");
    if (*wanted != tensor.size_bytes) {
      refuse_to_write(tensor.name, "it has " + std::to_string(tensor.size_bytes) + " bytes",
                      std::to_string(*wanted) + " for its type and shape");
    }
    if (!names.insert(tensor.name).second) refuse_to_write(tensor.name, "the name is used twice");
    order.push_back(&tensor);
  }
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const TensorToWrite* tensor) { return size_of(tensor->type); });
  return order;
}

// The metadata of a header with checksums starts with them; the header's own checksum stays zero until the
// header is complete.
std::vector<std::string> checksum_entries(const std::vector<const TensorToWrite*>& order) {
  std::string of_tensors;
  for (const TensorToWrite* tensor : order) {
    Checksum checksum;
    checksum.update(tensor->data, tensor->size_bytes);
    of_tensors += checksum.hex();
  }
  const auto entry = [](std::string_view key, const std::string& text) {
    return quoted(std::string(key)) + ":" + quoted(text);
  };
  return {entry(kHeaderChecksumKey, std::string(kChecksumDigits, '0')),
          entry(kTensorChecksumsKey, of_tensors)};
}

std::string metadata_entry(std::vector<std::string> entries, const Metadata& metadata) {
  for (const auto& [key, text] : metadata) {
    if (key == kHeaderChecksumKey || key == kTensorChecksumsKey)
      refuse_to_write(key, "the metadata has an entry of this name, which is reserved for checksums");
    entries.push_back(quoted(key) + ":" + quoted(text));
  }
  return quoted(std::string(kMetadataKey)) + ":{" + joined(entries, ",") + "}";
}

std::string tensor_entry(const TensorToWrite& tensor, std::size_t begin) {
  const nlohmann::ordered_json entry{{"dtype", name_of(tensor.type)},
                                     {"shape", tensor.shape},
                                     {"data_offsets", {begin, begin + tensor.size_bytes}}};
  return quoted(tensor.name) + ":" + entry.dump();
}

std::string header_of(const std::vector<const TensorToWrite*>& order, const Metadata& metadata,
                      WithChecksums checksums) {
  const bool is_checked = checksums == WithChecksums::yes;
  std::vector<std::string> entries;
  if (is_checked || !metadata.empty())
    entries.push_back(
        metadata_entry(is_checked ? checksum_entries(order) : std::vector<std::string>{}, metadata));
  std::size_t reached = 0;
  for (const TensorToWrite* tensor : order)
    entries.push_back(tensor_entry(*tensor, std::exchange(reached, reached + tensor->size_bytes)));
  std::string header = "{" + joined(entries, ",") + "}";
  header.append((8 - header.size() % 8) % 8, ' ');  // aligns the first value
  if (is_checked) header.replace(kCheckedHeaderStart.size(), kChecksumDigits, checksum_of_header(header));
  return header;
}

// The header's length and the header.
std::string start_of_file(const std::vector<const TensorToWrite*>& order, const Metadata& metadata,
                          WithChecksums checksums) {
  const std::string header = header_of(order, metadata, checksums);
  if (header.size() > kMaxHeaderBytes) refuse_to_write("", "the names and metadata take more than 100 MB");
  std::string start;
  for (std::size_t i = 0; i < kLengthBytes; ++i) start += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return start + header;
}

std::vector<std::string_view> pieces_of_file(std::string_view start,
                                             const std::vector<const TensorToWrite*>& order) {
  std::vector<std::string_view> pieces = {start};
  for (const TensorToWrite* tensor : order)
    if (tensor->size_bytes > 0)
      pieces.emplace_back(static_cast<const char*>(tensor->data), tensor->size_bytes);
  return pieces;
}

}  // namespace

std::string serialize_safetensors(std::span<const TensorToWrite> tensors, const Metadata& metadata,
                                  WithChecksums checksums) {
  const std::vector<const TensorToWrite*> order = in_file_order(tensors);
  const std::string start = start_of_file(order, metadata, checksums);
  std::size_t size = start.size();
  for (const TensorToWrite* tensor : order) size += tensor->size_bytes;
  std::string bytes;
  bytes.reserve(size);
  for (const std::string_view piece : pieces_of_file(start, order)) bytes += piece;
  return bytes;
}

void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const Metadata& metadata, WithChecksums checksums) {
  const std::vector<const TensorToWrite*> order = in_file_order(tensors);
  const std::string start = start_of_file(order, metadata, checksums);
  with_errors_as<CheckpointError>([&] { write_file_atomically(path, pieces_of_file(start, order)); });
}

}  // namespace kindling
