#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "base/error_kind.h"
#include "formats/file_start.h"
#include "formats/safetensors/safetensors_layout.h"
#include "formats/tensor_types.h"
#include "kindling/base/checksum.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/formats/safetensors.h"

namespace kindling {
namespace {

// Far beyond any model; keeps the memory that a hostile header can cost close to the header's size.
constexpr std::size_t kMaxEntries = 100'000;
constexpr std::size_t kMaxRank = 64;  // LibTorch's own limit

[[noreturn]] void refuse(const std::string& place, const std::string& found, const std::string& wanted = "") {
  throw CheckpointError({.place = place,
                         .found = found,
                         .wanted = wanted,
                         .remedy = "the file is damaged or not a safetensors file: copy or save it again"});
}

// True if a text could be a type of a newer version of the format: "F4", "F6_E2M3".
bool is_dtype_name(std::string_view text) {
  const auto is_part = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; };
  return !text.empty() && text.size() <= 20 && text[0] >= 'A' && text[0] <= 'Z' &&
         std::ranges::all_of(text, is_part);
}

// Accepts the parser's events for the one allowed structure only, so that depth, types and duplicates are
// checked while parsing, and no document is built:
//   { "__metadata__": {text: text …}, name: {"dtype": text, "shape": [n …], "data_offsets": [n, n]} … }
class HeaderReader {
 public:
  HeaderReader(std::string place, SafetensorsIndex& index) : place_(std::move(place)), index_(index) {}

  bool key(std::string& key) {
    key_ = std::move(key);
    if (state_ == State::root && !names_.insert(key_).second) refuse_entry("the name appears twice");
    if (names_.size() > kMaxEntries) refuse_entry("there are more than 100000 tensors");
    if (state_ == State::metadata && index_.metadata.contains(key_)) refuse_entry("the key appears twice");
    return true;
  }

  bool start_object(std::size_t) {
    if (state_ == State::start) {
      state_ = State::root;
    } else if (state_ == State::root && key_ == kMetadataKey) {
      state_ = State::metadata;
    } else if (state_ == State::root) {
      state_ = State::tensor;
      tensor_ = {};
      tensor_.name = key_;
    } else {
      return unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (state_ == State::tensor) add_tensor();
    state_ = State::root;
    return true;
  }

  bool string(std::string& text) {
    if (state_ == State::metadata) {
      index_.metadata.emplace(key_, std::move(text));
      if (index_.metadata.size() > kMaxEntries) refuse_entry("there are more than 100000 entries");
    } else if (state_ == State::tensor && key_ == "dtype" && dtype_.empty()) {
      if (!is_dtype_name(text)) refuse_entry("dtype " + json_string(text.substr(0, 20)) + " is unknown");
      dtype_ = std::move(text);
    } else {
      return unexpected("a string");
    }
    return true;
  }

  bool start_array(std::size_t) {
    if (state_ == State::tensor && key_ == "shape" && !shape_) {
      shape_.emplace();
      state_ = State::shape;
    } else if (state_ == State::tensor && key_ == "data_offsets" && !offsets_) {
      offsets_.emplace();
      state_ = State::offsets;
    } else {
      return unexpected("a list");
    }
    return true;
  }

  bool end_array() {
    state_ = State::tensor;
    return true;
  }

  bool number_unsigned(std::uint64_t number) {
    if (state_ != State::shape && state_ != State::offsets) return unexpected("a number");
    std::vector<std::uint64_t>& list = state_ == State::shape ? *shape_ : *offsets_;
    if (list.size() == (state_ == State::shape ? kMaxRank : 2)) refuse_entry("the list is too long");
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse_entry("the number " + std::to_string(number) + " is too large");
    }
    list.push_back(number);
    return true;
  }

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(std::int64_t) { return unexpected("a negative number"); }
  bool number_float(double, const std::string&) {
    return unexpected("a fraction or a number that is too large");
  }
  bool binary(std::vector<std::uint8_t>&) { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    refuse(place_ + ", byte " + std::to_string(kLengthBytes + position - 1), "the header is not valid JSON");
  }

 private:
  enum class State { start, root, metadata, tensor, shape, offsets };

  [[noreturn]] void refuse_entry(const std::string& found) const {
    const bool in_tensor = state_ >= State::tensor;
    std::string where =
        place_ + ", header entry " + json_string((in_tensor ? tensor_.name : key_).substr(0, 100));
    if (in_tensor && !key_.empty()) where += ", field " + json_string(key_.substr(0, 100));
    refuse(where, found);
  }

  bool unexpected(const std::string& what) const { refuse_entry(what + " is unexpected or repeated here"); }

  void add_tensor() {
    key_.clear();
    if (dtype_.empty() || !shape_ || !offsets_) refuse_entry("dtype, shape or data_offsets is missing");
    if (offsets_->size() != 2) refuse_entry("data_offsets does not have two numbers");
    tensor_.begin = (*offsets_)[0];
    tensor_.end = (*offsets_)[1];
    if (const auto* row = tensor_type_with(&TensorTypeRow::safetensors, std::string_view(dtype_))) {
      tensor_.type = row->type;
      tensor_.shape.assign(shape_->begin(), shape_->end());
      index_.tensors.push_back(std::move(tensor_));
    } else {
      index_.skipped.push_back({std::move(tensor_.name), dtype_, tensor_.begin, tensor_.end});
    }
    dtype_.clear();
    shape_.reset();
    offsets_.reset();
  }

  std::string place_;
  SafetensorsIndex& index_;
  State state_ = State::start;
  std::string key_;
  std::unordered_set<std::string> names_;
  TensorEntry tensor_;
  std::string dtype_;  // empty: not read yet
  std::optional<std::vector<std::uint64_t>> shape_, offsets_;
};

void read_header(std::string_view header, const std::string& place, SafetensorsIndex& index) {
  if (!header.starts_with('{')) refuse(place + ", byte 8", "the header is not a JSON object", "'{'");
  // The JSON parser treats a zero byte as the end and would ignore the rest.
  if (const std::size_t zero = header.find('\0'); zero != std::string_view::npos) {
    refuse(place + ", byte " + std::to_string(kLengthBytes + zero), "the header contains a zero byte");
  }
  HeaderReader reader(place, index);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
}

// Where the values of a tensor are, by data_offsets.
struct Extent {
  const std::string* name;
  std::size_t *begin, *end;
  const TensorEntry* entry;  // nullptr: a tensor of a type of unknown size
};

// In the order of their values.
std::vector<Extent> extents_of(SafetensorsIndex& index) {
  const auto by_offsets = [](const auto& one) { return std::pair(one.begin, one.end); };
  std::ranges::stable_sort(index.tensors, {}, by_offsets);
  std::ranges::stable_sort(index.skipped, {}, by_offsets);
  std::vector<Extent> extents;
  for (TensorEntry& entry : index.tensors) extents.push_back({&entry.name, &entry.begin, &entry.end, &entry});
  for (SkippedTensor& tensor : index.skipped)
    extents.push_back({&tensor.name, &tensor.begin, &tensor.end, nullptr});
  std::ranges::stable_sort(extents, {}, [](const Extent& one) { return std::pair(*one.begin, *one.end); });
  return extents;
}

// The values must cover the rest of the file without gaps or overlaps, as the format requires.
void check_layout(SafetensorsIndex& index, const std::string& place, std::size_t data_start,
                  std::size_t file_bytes) {
  const std::size_t data_bytes = file_bytes - data_start;
  std::size_t reached = 0;
  for (const auto& [name, begin, end, entry] : extents_of(index)) {
    const std::string where = place + ", tensor " + json_string(name->substr(0, 100));
    const std::string offsets = "[" + std::to_string(*begin) + ", " + std::to_string(*end) + "]";
    if (*end < *begin || *end > data_bytes) {
      refuse(where, "its data_offsets " + offsets + " are outside the file",
             "two ascending numbers up to " + std::to_string(data_bytes));
    }
    if (*begin != reached) {
      refuse(where, "its data_offsets " + offsets + (*begin < reached ? " overlap others" : " leave a gap"),
             "a start at " + std::to_string(reached));
    }
    if (entry != nullptr) {
      const std::optional<std::size_t> wanted = bytes_of(entry->type, entry->shape);
      if (!wanted) refuse(where, "its shape overflows");
      if (*wanted != *end - *begin) {
        refuse(where, "its data_offsets " + offsets + " do not fit its dtype and shape",
               std::to_string(*wanted) + " bytes");
      }
    }
    reached = *end;
    *begin += data_start;
    *end += data_start;
  }
  if (reached != data_bytes) {
    refuse(place + ", byte " + std::to_string(data_start + reached),
           std::to_string(data_bytes - reached) + " bytes do not belong to a tensor");
  }
}

[[noreturn]] void refuse_damage(const std::string& place, const std::string& found,
                                const std::string& wanted) {
  throw CheckpointError({.place = place,
                         .found = found,
                         .wanted = wanted,
                         .remedy = "the file is damaged: copy it again, or use an earlier one"});
}

std::string_view written_checksum(std::string_view header) {
  return header.substr(kCheckedHeaderStart.size(), kChecksumDigits);
}

// Throws CheckpointError if the header has a checksum that does not match.
void check_header(std::string_view header, const std::string& place) {
  if (!header.starts_with(kCheckedHeaderStart) ||
      header.size() < kCheckedHeaderStart.size() + kChecksumDigits)
    return;
  const std::string found = checksum_of_header(header);
  if (found != written_checksum(header))
    refuse_damage(place + ", header", "its checksum is " + found,
                  json_string(written_checksum(header)) + ", as recorded in it");
}

// Moves the checksums from the metadata of an index to its tensors. Throws CheckpointError if they do not
// have the form that a writer produces.
void take_checksums(std::string_view header, SafetensorsIndex& index, const std::string& place) {
  const auto of_header = index.metadata.extract(std::string(kHeaderChecksumKey));
  const auto of_tensors = index.metadata.extract(std::string(kTensorChecksumsKey));
  if (of_header.empty() && of_tensors.empty()) return;
  const std::size_t digits = of_tensors.empty() ? 0 : of_tensors.mapped().size();
  if (of_header.empty() || of_tensors.empty() || !header.starts_with(kCheckedHeaderStart) ||
      digits != kChecksumDigits * index.tensors.size())
    refuse_damage(place + ", header", "its checksums are incomplete",
                  "the header's checksum first in the metadata, and one for each tensor");
  index.has_checksums = true;
  for (std::size_t i = 0; i < index.tensors.size(); ++i)
    index.tensors[i].checksum = of_tensors.mapped().substr(kChecksumDigits * i, kChecksumDigits);
}

// Throws CheckpointError if the values, which `checksum` has been updated with, do not match.
void check_values(const TensorEntry& entry, const Checksum& checksum, const std::string& place) {
  if (entry.checksum.empty() || checksum.hex() == entry.checksum) return;
  refuse_damage(place + ", tensor " + json_string(entry.name.substr(0, 100)),
                "its values have the checksum " + checksum.hex(),
                json_string(entry.checksum) + ", as recorded in the header");
}

// Everything but the values is checked.
SafetensorsIndex parse_header(std::string_view header, std::size_t file_bytes, const std::string& place) {
  check_header(header, place);  // first, because its message is more useful
  SafetensorsIndex index;
  read_header(header, place, index);
  check_layout(index, place, kLengthBytes + header.size(), file_bytes);
  take_checksums(header, index, place);
  return index;
}

// Throws CheckpointError for a well-known file of another kind, whose first bytes are no length of a header.
void check_start(std::string_view start, const std::string& place) {
  if (start.size() > kLengthBytes && start[kLengthBytes] == '{') return;
  if (const KnownStart known = known_start(start); !known.found.empty())
    throw CheckpointError(
        {.place = place, .found = known.found, .wanted = "a safetensors file", .remedy = known.remedy});
}

// Small enough that a piece is still in the processor's cache when it is checksummed.
constexpr std::size_t kCheckedPieceBytes = std::size_t{1} << 18;

// Reads the values piece by piece to where `place_of(bytes read so far)` says, and checks them.
template <class PlaceOf>
void read_checked(const InputFile& file, const TensorEntry& entry, PlaceOf place_of) {
  Checksum checksum;
  for (std::size_t at = entry.begin; at < entry.end; at += kCheckedPieceBytes) {
    const std::size_t size = std::min(kCheckedPieceBytes, entry.end - at);
    char* const out = place_of(at - entry.begin);
    file.read(at, out, size);
    checksum.update(out, size);
  }
  check_values(entry, checksum, file.path().string());
}

}  // namespace

std::string checksum_of_header(std::string_view header) {
  Checksum checksum;
  checksum.update(kCheckedHeaderStart);
  checksum.update(std::string(kChecksumDigits, '0'));
  checksum.update(header.substr(kCheckedHeaderStart.size() + kChecksumDigits));
  return checksum.hex();
}

std::size_t checked_header_bytes(std::string_view start, std::size_t file_bytes, const std::string& place) {
  if (file_bytes < kLengthBytes) {
    refuse(place + ", byte " + std::to_string(file_bytes), "the file ends inside the header's length",
           "8 bytes");
  }
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length > kMaxHeaderBytes) {
    refuse(place + ", byte 0", "the header's length is " + std::to_string(length),
           "at most " + std::to_string(kMaxHeaderBytes));
  }
  if (length > file_bytes - kLengthBytes) {
    refuse(place + ", byte " + std::to_string(file_bytes), "the file ends inside the header",
           std::to_string(length) + " bytes of header");
  }
  return static_cast<std::size_t>(length);
}

const TensorEntry* SafetensorsIndex::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &TensorEntry::name);
  return found == tensors.end() ? nullptr : &*found;
}

SafetensorsIndex parse_safetensors(std::string_view bytes, const std::string& place) {
  const std::size_t header_bytes = checked_header_bytes(bytes, bytes.size(), place);
  SafetensorsIndex index = parse_header(bytes.substr(kLengthBytes, header_bytes), bytes.size(), place);
  for (const TensorEntry& entry : index.tensors) {
    Checksum checksum;
    checksum.update(bytes.substr(entry.begin, entry.end - entry.begin));
    check_values(entry, checksum, place);
  }
  return index;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) {
  with_errors_as<CheckpointError>([&] {
    file_ = std::make_shared<const InputFile>(path);
    std::string start(std::min(file_->size(), kKnownStartBytes), '\0');
    file_->read(0, start.data(), start.size());
    check_start(start, path.string());
    std::string header(checked_header_bytes(start, file_->size(), path.string()), '\0');
    file_->read(kLengthBytes, header.data(), header.size());
    index_ = parse_header(header, file_->size(), path.string());
  });
}

const std::filesystem::path& SafetensorsFile::path() const noexcept { return file_->path(); }

std::shared_ptr<char> SafetensorsFile::map() const { return file_->map(); }

void SafetensorsFile::read(const TensorEntry& entry, void* out) const {
  with_errors_as<CheckpointError>([&] {
    if (entry.checksum.empty()) return file_->read(entry.begin, out, entry.end - entry.begin);
    read_checked(*file_, entry, [&](std::size_t done) { return static_cast<char*>(out) + done; });
  });
}

void SafetensorsFile::check() const {
  if (!has_checksums()) return;
  std::string piece(kCheckedPieceBytes, '\0');
  with_errors_as<CheckpointError>([&] {
    for (const TensorEntry& entry : index_.tensors)
      read_checked(*file_, entry, [&](std::size_t) { return piece.data(); });
  });
}

}  // namespace kindling
