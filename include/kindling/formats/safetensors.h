#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// safetensors (github.com/huggingface/safetensors): 8 bytes header length, a JSON header, the tensors'
// values, little-endian and without gaps. All functions throw CheckpointError.
namespace kindling {

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
};

// The free texts of the header, under "__metadata__".
using Metadata = std::map<std::string, std::string>;

// A file as it was read: its bytes, and where in them the tensors are.
struct SafetensorsFile {
  Metadata metadata;
  std::vector<TensorEntry> tensors;  // in the order of their values in the file
  std::string bytes;                 // the whole file

  // A view into `bytes`. Foreign files may be unaligned: copy the values out rather than cast.
  std::string_view data(const TensorEntry& entry) const {
    return std::string_view(bytes).substr(entry.begin, entry.end - entry.begin);
  }
  KINDLING_API const TensorEntry* find(std::string_view name) const;  // nullptr: no such tensor
};

// Everything is checked: what is returned has offsets inside the file and sizes that fit type and shape.
KINDLING_API SafetensorsFile read_safetensors(const std::filesystem::path& path);
KINDLING_API SafetensorsFile parse_safetensors(std::string bytes, const std::string& place);

// A tensor as a writer wants it.
struct TensorToWrite {
  std::string name = {};
  TensorType type = TensorType::float32;
  std::vector<std::int64_t> shape = {};
  const void* data = nullptr;  // contiguous in row order, borrowed for the call
  std::size_t size_bytes = 0;
};

// The widest types come first, so that every tensor is aligned; else the order given is kept. Refuses
// duplicate names and sizes that do not fit type and shape.
KINDLING_API std::string serialize_safetensors(std::span<const TensorToWrite> tensors,
                                               const Metadata& metadata);

// Atomic and durable (write_file_atomically).
KINDLING_API void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                    const Metadata& metadata);

}  // namespace kindling
