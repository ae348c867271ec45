#include "kindling/formats/npy.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/error_kind.h"
#include "base/memory_info.h"
#include "formats/arrays/stored_array.h"
#include "formats/tensor_types.h"
#include "formats/zip/zip_archive.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::string_view kNpySignature("\x93NUMPY", 6);
constexpr std::size_t kMaxNpyHeaderBytes = std::size_t{1} << 16;
constexpr std::size_t kMaxNpyRank = 64;

[[noreturn]] void refuse_npy(const std::string& place, const std::string& found, const std::string& wanted,
                             const std::string& remedy = "") {
  throw DataError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
}

TensorType npy_type_of(const std::string& descr, const std::string& place) {
  const char order = descr.empty() ? '?' : descr.front();
  const std::string_view name = std::string_view(descr).substr(std::min<std::size_t>(1, descr.size()));
  const TensorTypeRow* type = tensor_type_with(&TensorTypeRow::numpy, name);
  if (type && (order == '<' || order == '|' || order == '=')) return type->type;
  if (type && order == '>')
    refuse_npy(place, "the type " + one_line(descr) + " is big-endian", "little-endian values",
               "save array.astype('<" + std::string(name) + "')");
  if (name.starts_with('O'))
    refuse_npy(place, "the array contains Python objects", "numbers",
               "save an array of one type, such as array.astype('float32')");
  refuse_npy(place, "the type " + one_line(descr) + " is not supported",
             "booleans, integers, float16, float32, float64 or complex64");
}

// Reads the dict of a header: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }.
class NpyHeaderReader {
 public:
  NpyHeaderReader(std::string_view text, const std::string& place) : text_(text), place_(place) {}

  void read_into(NpyArray& array) {
    std::optional<std::string> descr;
    std::optional<bool> is_column_major;
    bool has_shape = false;
    expect('{');
    while (!takes('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr)
        descr = at('[') ? std::string("(structured)") : quoted();
      else if (key == "fortran_order" && !is_column_major)
        is_column_major = boolean();
      else if (key == "shape" && !has_shape)
        has_shape = true, array.shape = sizes();
      else
        damaged();
      if (descr == "(structured)") npy_type_of(*descr, place_);
      if (!takes(',') && !at('}')) damaged();
    }
    skip_space();
    if (!descr || !is_column_major || !has_shape || at_ != text_.size()) damaged();
    array.type = npy_type_of(*descr, place_);
    array.is_column_major = *is_column_major;
  }

 private:
  [[noreturn]] void damaged() const {
    refuse_npy(place_, "the header is damaged at its character " + std::to_string(at_),
               "a dict with 'descr', 'fortran_order' and 'shape'");
  }
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool at(char wanted) {
    skip_space();
    return at_ < text_.size() && text_[at_] == wanted;
  }
  bool takes(char wanted) {
    if (!at(wanted)) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!takes(wanted)) damaged();
  }
  // NumPy of Python 2 may write u'<f4'.
  std::string quoted() {
    for (const char prefix : {'u', 'b'})
      if (takes(prefix)) break;
    if (!at('\'') && !at('"')) damaged();
    const std::size_t begin = at_ + 1, end = text_.find(text_[at_], begin);
    if (end == std::string_view::npos) damaged();
    at_ = end + 1;
    return std::string(text_.substr(begin, end - begin));
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair<std::string_view, bool>{"True", true}, {"False", false}})
      if (text_.substr(at_).starts_with(word)) return at_ += word.size(), value;
    damaged();
  }
  std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> sizes;
    expect('(');
    while (!takes(')')) {
      skip_space();
      std::int64_t size = -1;
      const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), size);
      if (error != std::errc() || size < 0 || sizes.size() == kMaxNpyRank) damaged();
      at_ = static_cast<std::size_t>(end - text_.data());
      sizes.push_back(size);
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // a long of Python 2
      if (!takes(',') && !at(')')) damaged();
    }
    return sizes;
  }

  std::string_view text_;
  const std::string& place_;
  std::size_t at_ = 0;
};

// The start of an array's file, and the number of bytes of its values.
struct NpyStart {
  NpyArray array{};
  std::size_t values = 0, num_bytes = 0;
};

// `head`: the first bytes of a file of `size` bytes, at least those of the header.
NpyStart npy_start_of(std::string_view head, std::size_t size, const std::string& place) {
  constexpr std::size_t kVersionEnd = 8;
  if (!head.starts_with(kNpySignature))
    refuse_npy(place, "the file does not begin as a .npy file", "a file of numpy.save");
  if (head.size() < kVersionEnd + 4) refuse_npy(place, "the file ends within its header", "a complete file");
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(head[i]));
  };
  const std::size_t version = byte(6);
  if (version < 1 || version > 3)
    refuse_npy(place, "version " + std::to_string(version) + " of the .npy format", "version 1, 2 or 3");
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::size_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) length |= byte(kVersionEnd + i) << (8 * i);
  NpyStart start{.values = kVersionEnd + length_bytes + length};
  if (length > kMaxNpyHeaderBytes || start.values > size)
    refuse_npy(place, "a header of " + std::to_string(length) + " bytes in a file of " + std::to_string(size),
               "at most " + std::to_string(kMaxNpyHeaderBytes) + ", within the file");
  NpyHeaderReader(head.substr(kVersionEnd + length_bytes, length), place).read_into(start.array);
  const std::optional<std::size_t> bytes = bytes_of(start.array.type, start.array.shape);
  if (!bytes)
    refuse_npy(place, "the shape has more values than any memory", "the shape of the values in the file");
  start.num_bytes = *bytes;
  if (start.num_bytes != size - start.values)
    refuse_npy(place,
               "the header promises " + std::to_string(start.num_bytes) + " bytes of values, and " +
                   std::to_string(size - start.values) + " follow",
               "a complete file with one array");
  return start;
}

// `read(offset, out, size)` copies bytes of a file of `size` bytes.
template <class Read>
NpyStart read_npy_start(std::size_t size, const std::string& place, Read read) {
  std::string head(std::min(size, kMaxNpyHeaderBytes + 12), '\0');
  read(std::size_t{0}, head.data(), head.size());
  return npy_start_of(head, size, place);
}

StoredArray stored(NpyStart start, std::string name, std::size_t file_begin) {
  return {.name = std::move(name),
          .type = start.array.type,
          .shape = std::move(start.array.shape),
          .begin = file_begin + start.values,
          .size_bytes = start.num_bytes,
          .is_column_major = start.array.is_column_major};
}

std::string name_without_ending(const std::string& entry) {
  return entry.ends_with(".npy") ? entry.substr(0, entry.size() - 4) : entry;
}

// An entry that is 1,032 times as large as its bytes in the file must not take all memory.
NpyArray npz_array_of(const ZipArchive& archive, const ZipEntry& entry, const std::string& place) {
  const std::optional<std::size_t> free =
      entry.is_deflated ? memory_info_bytes("MemAvailable") : std::nullopt;
  if (free && entry.size > *free)
    refuse_npy(place, "it has " + std::to_string(entry.size) + " bytes",
               std::to_string(*free) + ", which are free",
               "save it with numpy.savez, without compression, so that batches are read from the file");
  std::string bytes = archive.text(entry, entry.size);
  NpyStart start = npy_start_of(bytes, bytes.size(), place);
  start.array.bytes = std::move(bytes.erase(0, start.values));  // in place, not twice in memory
  return std::move(start.array);
}

// `names`: nullptr: all.
std::vector<NpyArray> npz_arrays_of(const ZipArchive& archive, const std::string& place,
                                    const std::set<std::string>* names = nullptr) {
  std::vector<NpyArray> arrays;
  for (const ZipEntry& entry : archive.entries()) {
    const std::string name = name_without_ending(entry.name);
    if (names != nullptr && !names->contains(name)) {
      arrays.push_back({.name = name});
      continue;
    }
    NpyArray array = npz_array_of(archive, entry, place + ", array '" + one_line(name) + "'");
    array.name = name;
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace

NpyArray parse_npy(std::string_view bytes, const std::string& place) {
  NpyStart start = npy_start_of(bytes, bytes.size(), place);
  start.array.bytes = bytes.substr(start.values);
  return std::move(start.array);
}

NpyArray read_npy(const std::filesystem::path& path) {
  return with_errors_as<DataError>([&] {
    const InputFile file(path);
    NpyStart start =
        read_npy_start(file.size(), path.string(),
                       [&](std::size_t at, void* out, std::size_t size) { file.read(at, out, size); });
    start.array.bytes.resize(start.num_bytes);
    file.read(start.values, start.array.bytes.data(), start.num_bytes);
    return std::move(start.array);
  });
}

std::vector<NpyArray> parse_npz(std::string bytes, const std::string& place) {
  return with_errors_as<DataError>([&] {
    return npz_arrays_of(
        ZipArchive(source_of_bytes(std::move(bytes)), place, ZipArchive::Inflation::of_deflate), place);
  });
}

std::vector<NpyArray> read_npz(const std::filesystem::path& path, const std::set<std::string>& names) {
  return with_errors_as<DataError>([&] {
    return npz_arrays_of(ZipArchive(source_of(path), path.string(), ZipArchive::Inflation::of_deflate),
                         path.string(), &names);
  });
}

std::vector<NpyArray> read_npz(const std::filesystem::path& path) {
  return with_errors_as<DataError>([&] {
    return npz_arrays_of(ZipArchive(source_of(path), path.string(), ZipArchive::Inflation::of_deflate),
                         path.string());
  });
}

StoredArray stored_npy(const std::filesystem::path& path) {
  return with_errors_as<DataError>([&] {
    const InputFile file(path);
    return stored(
        read_npy_start(file.size(), path.string(),
                       [&](std::size_t at, void* out, std::size_t size) { file.read(at, out, size); }),
        "", 0);
  });
}

std::vector<StoredArray> stored_npz(const std::filesystem::path& path, const std::set<std::string>& names) {
  return with_errors_as<DataError>([&] {
    const ZipArchive archive(source_of(path), path.string(), ZipArchive::Inflation::of_deflate);
    std::vector<StoredArray> arrays;
    for (const ZipEntry& entry : archive.entries()) {
      const std::string name = name_without_ending(entry.name);
      const bool is_requested = names.contains(name);
      if (!is_requested || entry.is_deflated) {
        arrays.push_back({.name = name,
                          .size_bytes = entry.size,
                          .is_compressed = entry.is_deflated,
                          .is_requested = is_requested});
        continue;
      }
      arrays.push_back(stored(read_npy_start(entry.size, path.string() + ", array '" + one_line(name) + "'",
                                             [&](std::size_t at, void* out, std::size_t size) {
                                               archive.read_piece(entry, at, out, size);
                                             }),
                              name, entry.begin));
    }
    return arrays;
  });
}

}  // namespace kindling
