#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// safetensors (github.com/huggingface/safetensors): 8 bytes header length, a JSON header, the tensors'
// values, little-endian and without gaps. All functions throw CheckpointError.
namespace kindling {

class InputFile;

// The types that LibTorch has too.
enum class TensorType { boolean, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64 };

KINDLING_API std::size_t size_of(TensorType type);       // bytes of one value
KINDLING_API std::string_view name_of(TensorType type);  // the format's name: "F32"

// What the header says of one tensor.
struct TensorEntry {
  std::string name;  // any UTF-8, also "/", "..", NUL: never use it as a path
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};  // empty: rank 0, one value
  std::size_t begin = 0, end = 0;        // bytes, counted from the start of the file
  std::string checksum{};                // of the values, as Checksum::hex; empty: the file has none
};

// The free texts of the header, under "__metadata__".
using Metadata = std::map<std::string, std::string>;

// What a file holds. Everything has been checked: offsets lie inside the file, sizes fit type and shape, and
// the header is the one that was written, where the file has checksums.
struct SafetensorsIndex {
  Metadata metadata{};                 // without the checksums
  std::vector<TensorEntry> tensors{};  // in the order of their values in the file
  bool has_checksums = false;          // one for each tensor and one for the header

  KINDLING_API const TensorEntry* find(std::string_view name) const;  // nullptr: no such tensor
};

// Of a whole file in memory. Where it has checksums, the values have been checked, too.
KINDLING_API SafetensorsIndex parse_safetensors(std::string_view bytes, const std::string& place);

// An open file: its index is in memory, its values are read a tensor at a time.
class KINDLING_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept;
  const SafetensorsIndex& index() const noexcept { return index_; }
  // Copies the values of an entry of the index: entry.end - entry.begin bytes, little-endian, in row order.
  // Where the file has checksums, throws for values that do not match theirs.
  void read(const TensorEntry& entry, void* out) const;
  // The header has been found whole when the file was opened, and every read() checks its values.
  bool has_checksums() const noexcept { return index_.has_checksums; }
  // Reads all values to check them; throws as read() does. Nothing for a file without checksums.
  void check() const;

 private:
  std::shared_ptr<const InputFile> file_;
  SafetensorsIndex index_;
};

// A tensor as a writer wants it.
struct TensorToWrite {
  std::string name = {};
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};
  const void* data = nullptr;  // contiguous in row order, borrowed for the call
  std::size_t size_bytes = 0;
};

// Whether a file carries checksums of its own (XXH3): of each tensor's values and of the header, in two
// entries of the metadata, "xxh3.tensors" and "xxh3.header", which users neither see nor give.
enum class WithChecksums { no, yes };

// The widest types come first, so that every tensor is aligned; else the order given is kept. Refuses
// duplicate names and sizes that do not fit type and shape.
KINDLING_API std::string serialize_safetensors(std::span<const TensorToWrite> tensors,
                                               const Metadata& metadata,
                                               WithChecksums checksums = WithChecksums::no);

// Atomic and durable (write_file_atomically), straight from where the values are.
KINDLING_API void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                    const Metadata& metadata, WithChecksums checksums = WithChecksums::no);

}  // namespace kindling
