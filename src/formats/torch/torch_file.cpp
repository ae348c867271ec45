#include "kindling/formats/torch_file.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "formats/tensor_types.h"
#include "formats/torch/python_conversion.h"
#include "formats/torch/torch_container.h"
#include "formats/torch/torch_optimizer_reader.h"
#include "formats/torch/torch_weights.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/json.h"
#include "kindling/formats/torch_optimizer.h"

namespace kindling {
namespace {

// True if contiguous and row-major, whatever the strides of sizes of one.
bool is_in_row_order(const TorchTensor& tensor) {
  std::int64_t wanted = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != wanted) return false;
    wanted *= tensor.shape[i];
  }
  return true;
}

// Returns the number of values that it spans in its storage; the tensor is not empty.
std::size_t span_of(const TorchTensor& tensor) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return static_cast<std::size_t>(last) + 1;
}

// Copies from a piece of a storage that begins with the tensor's first value, into row-major order.
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
    const ByteSource source = source_of(path);
    std::string start(std::min(source.size, kTorchStartBytes), '\0');
    source.read(0, start.data(), start.size());
    return begins_like_torch(start);
  });
}

TorchFile::TorchFile(const std::filesystem::path& path, const std::string& key) {
  with_errors_as<CheckpointError>([&] { open(source_of(path), path.string(), key); });
}

TorchFile TorchFile::of_bytes(std::string bytes, const std::string& place, const std::string& key) {
  TorchFile file;
  file.open(source_of_bytes(std::move(bytes)), place, key);
  return file;
}

void TorchFile::open(ByteSource source, const std::string& place, const std::string& key) {
  const PythonSource python{.suffix = key.empty() ? "" : "[" + json_string(key) + "]"};
  const auto opened = open_torch(std::move(source), place, conversion_in_python(place, python));
  TorchWeights weights = torch_weights_in(*opened, key);
  storages_ = opened->storages;
  tensors_ = std::move(weights.tensors);
  skipped_ = std::move(weights.skipped);
}

TorchOptimizerFile TorchFile::open_optimizer(ByteSource source, const std::string& place,
                                             const std::string& key) {
  const auto opened = open_torch(std::move(source), place, kOptimizerRemedy);
  OptimizerInPickle found = optimizer_in(*opened, key);
  TorchFile values;
  values.storages_ = opened->storages;
  values.tensors_ = std::move(found.tensors);
  return TorchOptimizerFile{std::move(values), std::move(found.groups), std::move(found.state)};
}

TorchOptimizerFile open_torch_optimizer(const std::filesystem::path& path, const std::string& key) {
  return with_errors_as<CheckpointError>(
      [&] { return TorchFile::open_optimizer(source_of(path), path.string(), key); });
}

TorchOptimizerFile torch_optimizer_of_bytes(std::string bytes, const std::string& place,
                                            const std::string& key) {
  return TorchFile::open_optimizer(source_of_bytes(std::move(bytes)), place, key);
}

const TorchTensor* TorchFile::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &TorchTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

void TorchFile::read(const TorchTensor& tensor, void* out) const {
  with_errors_as<CheckpointError>([&] {
    const std::size_t size = tensor.size_bytes(), begin = tensor.offset * size_of(tensor.type);
    if (size == 0) return;
    if (is_in_row_order(tensor)) return storages_->read(tensor.storage, begin, out, size);
    std::string piece(span_of(tensor) * size_of(tensor.type), '\0');
    storages_->read(tensor.storage, begin, piece.data(), piece.size());
    gather(tensor, piece.data(), static_cast<char*>(out));
  });
}

}  // namespace kindling
