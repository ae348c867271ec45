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

// safetensors (github.com/huggingface/safetensors): 8 bytes of header length, a JSON header, the tensors'
// values, little-endian and without gaps. All functions throw CheckpointError.
namespace kindling {

class InputFile;

// The types that LibTorch has too.
enum class TensorType {
  boolean,
  uint8,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  uint16,
  uint32,
  uint64,
  float8_e4m3fn,
  float8_e4m3fnuz,
  float8_e5m2,
  float8_e5m2fnuz,
  float8_e8m0fnu,
  complex64
};

KINDLING_API std::size_t size_of(TensorType type);       // bytes of one value
KINDLING_API std::string_view name_of(TensorType type);  // the format's name: "F32"

// What the header says about one tensor.
struct TensorEntry {
  std::string name;  // any UTF-8, also "/", "..", NUL: never use it as a path
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};  // empty: rank 0, one value
  std::size_t begin = 0, end = 0;        // bytes, counted from the start of the file
  std::string checksum{};                // of the values, as Checksum::hex; empty: the file has none
};

// A tensor of a type that LibTorch does not have, such as "F4": its values cannot be read.
struct SkippedTensor {
  std::string name;                // as in TensorEntry
  std::string dtype{};             // as in the file
  std::size_t begin = 0, end = 0;  // bytes, counted from the start of the file
};

// The free-form texts of the header, under "__metadata__".
using Metadata = std::map<std::string, std::string>;

// The contents of a file. Everything has been validated: offsets are inside the file, sizes match type and
// shape, and the header matches its checksum, if the file has checksums.
struct SafetensorsIndex {
  Metadata metadata{};                 // without the checksums
  std::vector<TensorEntry> tensors{};  // in the order of their values in the file
  std::vector<SkippedTensor> skipped{};
  bool has_checksums = false;  // one for each tensor and one for the header

  KINDLING_API const TensorEntry* find(std::string_view name) const;  // nullptr: no such tensor
};

// Parses a whole file in memory. If it has checksums, the values are checked too.
KINDLING_API SafetensorsIndex parse_safetensors(std::string_view bytes, const std::string& place);

// An open file: its index is in memory, its values are read one tensor at a time.
class KINDLING_API SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const noexcept;
  const SafetensorsIndex& index() const noexcept { return index_; }
  // Copies the values of an entry of the index: entry.end - entry.begin bytes, little-endian, in row-major
  // order. If the file has checksums, throws for values that do not match.
  void read(const TensorEntry& entry, void* out) const;
  // Returns the whole file as InputFile::map() does, with an entry's values from entry.begin on; checks
  // nothing.
  std::shared_ptr<char> map() const;
  // True if the file has checksums: opening it has checked the header, and every read() checks its values.
  bool has_checksums() const noexcept { return index_.has_checksums; }
  // Reads all values to check them; throws as read() does. Does nothing for a file without checksums.
  void check() const;

 private:
  std::shared_ptr<const InputFile> file_;
  SafetensorsIndex index_;
};

// A tensor to write.
struct TensorToWrite {
  std::string name = {};
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};
  const void* data = nullptr;  // contiguous in row-major order, borrowed for the call
  std::size_t size_bytes = 0;
};

// Whether a file contains checksums (XXH3) of each tensor's values and of the header. They are two entries of
// the metadata, "xxh3.tensors" and "xxh3.header", which users neither see nor set.
enum class WithChecksums { no, yes };

// Writes the widest types first, so that every tensor is aligned; otherwise keeps the given order. Rejects
// duplicate names and sizes that do not match type and shape.
KINDLING_API std::string serialize_safetensors(std::span<const TensorToWrite> tensors,
                                               const Metadata& metadata,
                                               WithChecksums checksums = WithChecksums::no);

// Atomic and durable (write_file_atomically); writes the values directly from their memory.
KINDLING_API void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                    const Metadata& metadata, WithChecksums checksums = WithChecksums::no);

}  // namespace kindling
