#include "formats/torch/torch_container.h"

#include <algorithm>
#include <utility>

#include "formats/file_start.h"
#include "formats/tensor_types.h"
#include "formats/torch/pickle_names.h"
#include "formats/torch/python_conversion.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMaxCodeBytes = std::size_t{1} << 24;
constexpr std::string_view kZipStart = "PK\3\4"sv;
// The number 0x1950a86a20f9469cfc6c, the first value of files before PyTorch 1.6, as a pickle.
constexpr std::string_view kMagicNumber = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;
constexpr std::int64_t kOldProtocol = 1001;

[[noreturn]] void refuse_container(const std::string& place, const std::string& found,
                                   const std::string& wanted, const std::string& remedy) {
  throw CheckpointError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
}

std::string piece_at(const ByteSource& source, std::size_t offset, std::size_t size) {
  std::string bytes(std::min(size, source.size - offset), '\0');
  source.read(offset, bytes.data(), bytes.size());
  return bytes;
}

bool begins_like_old_torch(std::string_view start) {
  return start.starts_with('\x80') && start.substr(0, kTorchStartBytes).find(kMagicNumber) != start.npos;
}

// --- zip archives ---

// Returns the folder in the archive that contains everything, with its slash.
std::string root_of(const ZipArchive& archive, const std::string& place) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const ZipEntry& entry : archive.entries())
    if (entry.name.ends_with(kPickle) && entry.name.find('/') == entry.name.size() - kPickle.size())
      return entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  const bool is_old_script = std::ranges::any_of(
      archive.entries(), [](const ZipEntry& entry) { return entry.name.ends_with("/model.json"); });
  if (is_old_script)
    refuse_container(
        place, "it is a TorchScript archive of PyTorch before 1.4", "one of PyTorch 1.4 or newer",
        "save its weights in Python: torch.save(torch.jit.load(FILE).state_dict(), \"weights.pt\")");
  refuse_container(place, "the zip archive has no entry FOLDER/data.pkl", "a file of torch.save",
                   "check that it is the right file");
}

// PyTorch before 2.1 did not record it, and ran on little-endian machines.
void check_byte_order(const ZipArchive& archive, const std::string& root, const std::string& place,
                      const std::string& remedy) {
  const ZipEntry* const order = archive.find(root + "byteorder");
  if (order == nullptr) return;
  const std::string found = archive.text(*order, 100);
  if (found != "little")
    refuse_container(place, "its byte order is " + json_string(found), "\"little\"", remedy);
}

void require_stored(const ZipEntry& entry, const std::string& place, const std::string& remedy) {
  if (entry.is_deflated)
    refuse_container(place + ", entry " + quoted_key(entry.name), "it is compressed",
                     "stored entries, as torch.save writes them", remedy);
}

// --- files before PyTorch 1.6: five pickles, then the storages ---

// The number of bytes of a value in a storage, also of types that cannot be read.
std::size_t value_bytes_of(const Pickle& pickle, const PickleValue& type) {
  if (const TensorTypeRow* row = tensor_type_with(&TensorTypeRow::storage, type.text)) return row->bytes;
  constexpr std::pair<std::string_view, std::size_t> kOthers[] = {
      {"torch ComplexDoubleStorage", 16}, {"torch QUInt8Storage", 1},   {"torch QInt8Storage", 1},
      {"torch QInt32Storage", 4},         {"torch QUInt4x2Storage", 1}, {"torch QUInt2x4Storage", 1}};
  if (type.text == kUntypedStorage) return 1;
  const std::string name = name_text(pickle, type);
  for (const auto& [other, bytes] : kOthers)
    if (name.size() == other.size() && name.substr(6) == other.substr(6)) return bytes;
  return 0;
}

// Returns each storage's number of bytes, by its key.
std::unordered_map<std::string_view, std::size_t> sizes_of_storages(const Pickle& pickle,
                                                                    const std::string& place) {
  std::unordered_map<std::string_view, std::size_t> sizes;
  for (Pickle::Place i = 0; i < pickle.size(); ++i) {
    const PickleValue& storage = pickle[i];
    if (storage.kind != Pickle::Kind::storage) continue;
    const PickleValue& type = pickle[storage.items[0]];
    const std::size_t bytes = value_bytes_of(pickle, type);
    const std::string where = place + ", storage " + quoted_key(storage.text);
    if (bytes == 0)
      refuse_container(where, "its type " + name_text(pickle, type) + " is unknown", "a storage of PyTorch",
                       conversion_in_python(place));
    const auto values = static_cast<std::uint64_t>(storage.integer);
    if (storage.integer < 0 || values > (std::uint64_t{1} << 56) / bytes)
      refuse_container(where, "it has " + std::to_string(storage.integer) + " values", "", kDamagedTorchFile);
    const auto [known, added] = sizes.emplace(storage.text, values * bytes);
    if (!added && known->second != values * bytes)
      refuse_container(where, "it has two sizes", "one", kDamagedTorchFile);
  }
  return sizes;
}

struct OldPickles {
  Pickle values, keys;
  std::size_t end = 0;  // of the last one
};

OldPickles old_pickles_in(std::string_view bytes, const std::string& place, const std::string& remedy) {
  const Pickle magic(bytes, 0, place, kDamagedTorchFile),
      protocol(bytes, magic.end(), place, kDamagedTorchFile);
  if (protocol.result().kind != Pickle::Kind::integer || protocol.result().integer != kOldProtocol)
    refuse_container(place, "its protocol is " + described(protocol, protocol.result()),
                     "the number " + std::to_string(kOldProtocol), kDamagedTorchFile);
  const Pickle system(bytes, protocol.end(), place, kDamagedTorchFile);  // torch.load ignores it, too
  Pickle values(bytes, system.end(), place, remedy);
  Pickle keys(bytes, values.end(), place, kDamagedTorchFile);
  const std::size_t end = keys.end();
  return {std::move(values), std::move(keys), end};
}

// Reads as much of the file as the pickles need, which nothing says in advance.
OldPickles read_old_pickles(const ByteSource& source, std::string& bytes, const std::string& place,
                            const std::string& remedy) {
  for (std::size_t size = std::size_t{1} << 18;; size *= 16) {
    size = std::min(size, kMaxPickleBytes);
    bytes = piece_at(source, 0, size);
    try {
      return old_pickles_in(bytes, place, remedy);
    } catch (const PickleEndsEarly&) {
      if (size >= source.size || size == kMaxPickleBytes) throw;
    }
  }
}

// In the order of the keys: the number of values in 8 bytes, then the values.
std::vector<TorchStorageBytes::Piece> old_storages(const ByteSource& source, const OldPickles& pickles,
                                                   const std::string& place, TorchStorages& by_key) {
  constexpr std::size_t kCountBytes = 8;
  const auto sizes = sizes_of_storages(pickles.values, place);
  if (pickles.keys.result().kind != Pickle::Kind::list)
    refuse_container(place, "its list of storages is " + described(pickles.keys, pickles.keys.result()),
                     "a list", kDamagedTorchFile);
  std::vector<TorchStorageBytes::Piece> pieces;
  std::size_t at = pickles.end;
  for (const Pickle::Place key : pickles.keys.result().items) {
    const std::string_view name = pickles.keys[key].text;
    const std::string where = place + ", storage " + quoted_key(name);
    const auto size = sizes.find(name);
    if (pickles.keys[key].kind != Pickle::Kind::text || size == sizes.end())
      refuse_container(where, "no tensor has this storage", "", kDamagedTorchFile);
    if (source.size - at < kCountBytes || size->second > source.size - at - kCountBytes)
      refuse_container(where, "the file ends within it",
                       std::to_string(size->second) + " bytes from byte " + std::to_string(at),
                       kDamagedTorchFile);
    const std::string count = piece_at(source, at, kCountBytes);
    std::uint64_t values = 0;
    for (std::size_t i = kCountBytes; i-- > 0;) values = values << 8 | static_cast<unsigned char>(count[i]);
    at += kCountBytes;
    // The key is one of the values' pickle, which lives longer.
    if (!by_key.emplace(size->first, TorchStorage{pieces.size(), size->second}).second)
      refuse_container(where, "it appears twice", "", kDamagedTorchFile);
    if ((values == 0) != (size->second == 0) ||
        (values != 0 && (size->second % values != 0 || size->second / values > 16)))
      refuse_container(where, "it has " + std::to_string(values) + " values",
                       std::to_string(size->second) + " bytes", kDamagedTorchFile);
    pieces.push_back({at, size->second});
    at += size->second;
  }
  return pieces;
}

}  // namespace

void TorchStorageBytes::read(std::size_t index, std::size_t begin, void* out, std::size_t size) const {
  if (!archive_) return source_.read(pieces_[index].begin + begin, out, size);
  const ZipEntry& entry = archive_->entries()[index];
  if (begin == 0 && size == entry.size) return archive_->read(entry, out);
  if (!is_checked_[index]) {
    archive_->check(entry);
    is_checked_[index] = true;
  }
  archive_->read_piece(entry, begin, out, size);
}

std::string TorchContainer::code_of(std::string_view module) const {
  std::string path(module);
  std::ranges::replace(path, '.', '/');
  const auto found = code_.find(path);
  return found == code_.end() ? "" : archive_->text(*found->second, kMaxCodeBytes);
}

bool begins_like_torch(std::string_view start) {
  return start.starts_with(kZipStart) || begins_like_old_torch(start);
}

void TorchContainer::open_old(ByteSource source, const std::string& remedy) {
  OldPickles pickles = read_old_pickles(source, pickle_bytes, place, remedy);
  std::vector<TorchStorageBytes::Piece> pieces = old_storages(source, pickles, place, by_key);
  pickle.emplace(std::move(pickles.values));
  storages = std::make_shared<TorchStorageBytes>(std::move(source), std::move(pieces));
}

void TorchContainer::open_archive(ByteSource source, const std::string& remedy) {
  archive_.emplace(std::move(source), place);
  const std::string root = root_of(*archive_, place), data = root + "data/", code = root + "code/";
  check_byte_order(*archive_, root, place, remedy);
  is_script = archive_->find(root + "constants.pkl") != nullptr;
  pickle_bytes = archive_->text(*archive_->find(root + "data.pkl"), kMaxPickleBytes);
  pickle.emplace(pickle_bytes, 0, place + ", data.pkl", remedy);
  if (pickle->end() != pickle_bytes.size())
    refuse_container(place + ", data.pkl", "it continues after the pickle", "", kDamagedTorchFile);
  storages = std::make_shared<TorchStorageBytes>(*archive_);
  for (std::size_t i = 0; i < archive_->entries().size(); ++i) {
    const ZipEntry& entry = archive_->entries()[i];
    const std::string_view name = entry.name;
    if (name.starts_with(data)) {
      require_stored(entry, place, remedy);
      by_key.emplace(name.substr(data.size()), TorchStorage{i, entry.size});
    } else if (name.starts_with(code) && name.ends_with(".py")) {
      code_.emplace(name.substr(code.size(), name.size() - code.size() - 3), &entry);
    }
  }
}

std::unique_ptr<TorchContainer> open_torch(ByteSource source, const std::string& place,
                                           const std::string& remedy) {
  const std::string start = piece_at(source, 0, kKnownStartBytes);
  auto file = std::make_unique<TorchContainer>();
  file->place = place;
  if (begins_like_old_torch(start)) {
    file->open_old(std::move(source), remedy);
  } else if (start.starts_with(kZipStart)) {
    file->open_archive(std::move(source), remedy);
  } else {
    const KnownStart known = known_start(start);
    refuse_container(place, known.found.empty() ? "it does not begin like a file of torch.save" : known.found,
                     "a file of torch.save",
                     known.remedy.empty() ? "check that it is the right file and complete" : known.remedy);
  }
  return file;
}

}  // namespace kindling
