#include "kindling/formats/torch_file.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error_kind.h"
#include "formats/pickle.h"
#include "formats/safetensors_layout.h"
#include "formats/torch_optimizer_state.h"
#include "formats/torch_tensors.h"
#include "formats/zip_archive.h"
#include "formats/zip_layout.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMaxPickleBytes = std::size_t{1} << 26;
constexpr std::string_view kZipStart = "PK\3\4"sv;
// The magic number 0x1950a86a20f9469cfc6c with which files before PyTorch 1.6 begin, as a pickle.
constexpr std::string_view kLegacyStart = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv;

std::string start_of(const ByteSource& source) {
  std::string start(std::min(source.size, kLegacyStart.size()), '\0');
  source.read(0, start.data(), start.size());
  return start;
}

void check_start(const ByteSource& source, const std::string& place) {
  const std::string start = start_of(source);
  if (start.starts_with(kZipStart)) return;
  if (start == kLegacyStart)
    throw CheckpointError({.place = place,
                           .found = "it has the format of PyTorch before 1.6",
                           .wanted = "that of torch.save since then, a zip archive",
                           .remedy = conversion_in_python(place)});
  throw CheckpointError({.place = place,
                         .found = "it does not begin as a file of torch.save does",
                         .wanted = "a zip archive",
                         .remedy = "check that it is the right file, and whole"});
}

// The folder in the archive that everything is in, with its slash.
std::string root_of(const ZipArchive& archive, const std::string& place) {
  constexpr std::string_view kPickle = "/data.pkl";
  for (const ZipEntry& entry : archive.entries())
    if (entry.name.ends_with(kPickle) && entry.name.find('/') == entry.name.size() - kPickle.size())
      return entry.name.substr(0, entry.name.size() - kPickle.size() + 1);
  throw CheckpointError({.place = place,
                         .found = "the zip archive has no data.pkl in a folder of its own",
                         .wanted = "a file of torch.save",
                         .remedy = "check that it is the right file"});
}

// PyTorch before 2.1 did not say it, and ran on machines such as this one.
void check_byte_order(const ZipArchive& archive, const std::string& root, const std::string& place) {
  const ZipEntry* const order = archive.find(root + "byteorder");
  if (order == nullptr) return;
  const std::string found = archive.text(*order, 100);
  if (found != "little")
    throw CheckpointError({.place = place,
                           .found = "its byte order is " + json_string(found),
                           .wanted = "\"little\"",
                           .remedy = conversion_in_python(place)});
}

TorchStorages storages_in(const ZipArchive& archive, const std::string& root) {
  const std::string folder = root + "data/";
  TorchStorages storages;
  for (std::size_t i = 0; i < archive.entries().size(); ++i)
    if (const ZipEntry& entry = archive.entries()[i]; entry.name.starts_with(folder))
      storages.emplace(std::string_view(entry.name).substr(folder.size()), TorchStorage{i, entry.size});
  return storages;
}

// Gapless and in row order; sizes of one have no say in it.
bool is_in_row_order(const TorchTensor& tensor) {
  std::int64_t wanted = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != wanted) return false;
    wanted *= tensor.shape[i];
  }
  return true;
}

// How many values of its storage it spans; it has some.
std::size_t span_of(const TorchTensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return static_cast<std::size_t>(last) + 1;
}

// From a piece of a storage, which begins with the tensor's first value, into row order.
void gather(const TorchTensor& tensor, const char* from, char* out) {
  const std::size_t bytes = size_of(tensor.type), rank = tensor.shape.size();
  const std::int64_t row = tensor.shape[rank - 1], step = tensor.strides[rank - 1];
  std::vector<std::int64_t> place(rank - 1, 0);  // of a row
  for (std::int64_t at = 0;;) {
    for (std::int64_t i = 0; i < row; ++i, out += bytes)
      std::memcpy(out, from + static_cast<std::size_t>(at + i * step) * bytes, bytes);
    std::size_t axis = rank - 1;
    for (; axis > 0; --axis) {
      at += tensor.strides[axis - 1];
      if (++place[axis - 1] < tensor.shape[axis - 1]) break;
      at -= tensor.strides[axis - 1] * std::exchange(place[axis - 1], 0);
    }
    if (axis == 0) return;
  }
}

}  // namespace

std::size_t TorchTensor::size_bytes() const { return bytes_of(type, shape).value_or(0); }

bool is_torch_file(const std::filesystem::path& path) {
  return with_errors_as<CheckpointError>([&] {
    const std::string start = start_of(source_of(path));
    return start.starts_with(kZipStart) || start == kLegacyStart;
  });
}

// The archive, and which of its entries have been found whole.
struct TorchFile::Storages {
  Storages(ByteSource source, const std::string& place)
      : archive(std::move(source), place), is_checked(archive.entries().size()) {}

  // `read` makes what it gives back of the pickle and of what the archive has stored.
  template <class Read>
  static auto open(ByteSource source, const std::string& place, const std::string& remedy, Read read) {
    check_start(source, place);
    auto storages = std::make_shared<Storages>(std::move(source), place);
    const ZipArchive& archive = storages->archive;
    const std::string root = root_of(archive, place);
    check_byte_order(archive, root, place);
    const std::string pickled = archive.text(*archive.find(root + "data.pkl"), kMaxPickleBytes);
    const Pickle pickle(pickled, place, remedy);
    return std::pair(storages, read(pickle, storages_in(archive, root)));
  }
  static auto open_state_dict(ByteSource source, const std::string& place, const std::string& key) {
    return open(std::move(source), place, conversion_in_python(place),
                [&](const Pickle& pickle, const TorchStorages& stored) {
                  return state_dict_tensors(pickle, key, stored, place);
                });
  }
  static auto open_optimizer(ByteSource source, const std::string& place, const std::string& key) {
    return open(std::move(source), place, kOptimizerRemedy,
                [&](const Pickle& pickle, const TorchStorages& stored) {
                  return optimizer_in(pickle, key, stored, place);
                });
  }

  ZipArchive archive;
  std::vector<std::atomic<bool>> is_checked;
};

TorchFile::TorchFile(const std::filesystem::path& path, const std::string& key) {
  with_errors_as<CheckpointError>([&] {
    std::tie(storages_, tensors_) = Storages::open_state_dict(source_of(path), path.string(), key);
  });
}

TorchFile TorchFile::of_bytes(std::string bytes, const std::string& place, const std::string& key) {
  TorchFile file;
  std::tie(file.storages_, file.tensors_) =
      Storages::open_state_dict(source_of_bytes(std::move(bytes)), place, key);
  return file;
}

TorchOptimizer open_torch_optimizer(const std::filesystem::path& path, const std::string& key) {
  return with_errors_as<CheckpointError>([&] {
    auto [storages, found] = TorchFile::Storages::open_optimizer(source_of(path), path.string(), key);
    TorchFile values;
    values.storages_ = std::move(storages);
    values.tensors_ = std::move(found.tensors);
    return TorchOptimizer{std::move(values), std::move(found.groups), std::move(found.state)};
  });
}

TorchOptimizer torch_optimizer_of_bytes(std::string bytes, const std::string& place, const std::string& key) {
  auto [storages, found] = TorchFile::Storages::open_optimizer(source_of_bytes(std::move(bytes)), place, key);
  TorchFile values;
  values.storages_ = std::move(storages);
  values.tensors_ = std::move(found.tensors);
  return TorchOptimizer{std::move(values), std::move(found.groups), std::move(found.state)};
}

const TorchTensor* TorchFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TorchTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void TorchFile::read(const TorchTensor& tensor, void* out) const {
  with_errors_as<CheckpointError>([&] {
    const ZipArchive& archive = storages_->archive;
    const ZipEntry& entry = archive.entries()[tensor.storage];
    const std::size_t size = tensor.size_bytes(), begin = tensor.offset * size_of(tensor.type);
    if (size == 0) return;
    const bool is_row_order = is_in_row_order(tensor);
    if (is_row_order && size == entry.size) return archive.read(entry, out);
    if (std::atomic<bool>& is_checked = storages_->is_checked[tensor.storage]; !is_checked) {
      archive.check(entry);
      is_checked = true;
    }
    if (is_row_order) return archive.read_piece(entry, begin, out, size);
    std::string piece(span_of(tensor) * size_of(tensor.type), '\0');
    archive.read_piece(entry, begin, piece.data(), piece.size());
    gather(tensor, piece.data(), static_cast<char*>(out));
  });
}

}  // namespace kindling
