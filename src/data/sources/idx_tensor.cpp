#include "data/sources/idx_tensor.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "kindling/base/error.h"
#include "tensors/scalar_types.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

at::ScalarType scalar_type(IdxType type) {
  const TensorTypeRow* row = tensor_type_with(&TensorTypeRow::idx, static_cast<std::uint8_t>(type));
  if (row == nullptr) throw DataError({.found = "IDX: unknown type"});
  return scalar_type_of(row->type);
}

void require_uint8(const at::Tensor& tensor, bool right_rank, const std::filesystem::path& file,
                   const char* wanted) {
  if (tensor.scalar_type() == at::kByte && right_rank) return;
  throw DataError(
      {.place = file.string(),
       .found = std::string("the array is ") + c10::toString(tensor.scalar_type()) + " " + shape_text(tensor),
       .wanted = wanted});
}

}  // namespace

at::Tensor idx_tensor(const IdxArray& array) {
  at::Tensor tensor = at::empty(array.shape, scalar_type(array.type));
  if (!array.bytes.empty()) std::memcpy(tensor.mutable_data_ptr(), array.bytes.data(), array.bytes.size());
  return tensor;
}

LabelledImages read_labelled_images(const std::filesystem::path& images,
                                    const std::filesystem::path& labels) {
  LabelledImages read{.images = idx_tensor(read_idx(images)), .labels = idx_tensor(read_idx(labels))};
  require_uint8(read.images, read.images.dim() == 3 || read.images.dim() == 4, images,
                "images: Byte [n, height, width] or [n, channels, height, width]");
  require_uint8(read.labels, read.labels.dim() == 1, labels, "labels: Byte [n]");
  if (read.images.dim() == 3) read.images = read.images.unsqueeze(1);
  if (read.images.size(0) != read.labels.size(0))
    throw DataError({.place = images.string(),
                     .found = std::to_string(read.images.size(0)) + " images, but " +
                              std::to_string(read.labels.size(0)) + " labels in " + labels.string(),
                     .wanted = "as many labels as images"});
  return read;
}

}  // namespace kindling
