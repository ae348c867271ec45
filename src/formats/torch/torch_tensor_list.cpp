#include "formats/torch/torch_tensor_list.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "formats/tensor_types.h"
#include "kindling/base/error.h"
#include "kindling/base/json.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxTensorRank = 64;    // LibTorch's own
constexpr std::size_t kMaxTimesShared = 256;  // or a file of a megabyte could ask for gigabytes

// One tensor: its values from the pickle as validated numbers.
class TensorReader {
 public:
  TensorReader(const TorchContainer& file, const PythonSource& python, std::string_view name)
      : pickle_(*file.pickle), file_(file), python_(python), name_(name) {}

  TorchTensor read(const PickleValue& value) const {
    TorchTensor tensor{.name = std::string(name_)};
    if (!is_utf8(name_)) refuse("its name is not valid UTF-8");
    if (value.kind != PickleValue::Kind::tensor)
      refuse("it is " + described(pickle_, value), "a dense tensor", conversion());
    const std::size_t values = take_storage(value, tensor);
    tensor.shape = sizes(pickle_[value.items[1]]);
    tensor.strides = sizes(pickle_[value.items[2]]);
    if (tensor.shape.size() != tensor.strides.size() || tensor.shape.size() > kMaxTensorRank)
      refuse("it has " + std::to_string(tensor.shape.size()) + " sizes and " +
             std::to_string(tensor.strides.size()) + " strides");
    if (value.integer < 0) refuse("it starts before its storage");
    tensor.offset = static_cast<std::size_t>(value.integer);
    check_extent(tensor, values);
    return tensor;
  }

 private:
  [[noreturn]] void refuse(const std::string& found, const std::string& wanted = "",
                           const std::string& remedy = kDamagedTorchFile) const {
    throw CheckpointError({.place = file_.place + ", tensor " + quoted_key(name_),
                           .found = found,
                           .wanted = wanted,
                           .remedy = remedy});
  }
  std::string conversion() const { return conversion_in_python(file_.place, python_); }

  // The type is the storage's, or that of a name such as torch.float8_e4m3fn.
  TensorType type_of(const PickleValue& value) const {
    const bool has_dtype = value.items.size() > 3;
    const PickleValue& name = pickle_[has_dtype ? value.items[3] : pickle_[value.items[0]].items[0]];
    const TensorTypeRow* const row =
        name.items.empty()
            ? tensor_type_with(has_dtype ? &TensorTypeRow::dtype : &TensorTypeRow::storage, name.text)
            : nullptr;
    if (row == nullptr)
      refuse("its type " + json_string(name_text(pickle_, name)) + " is not supported",
             "bool, an integer, a floating-point type or complex64", conversion());
    return row->type;
  }

  // Returns the number of the storage's values.
  std::size_t take_storage(const PickleValue& value, TorchTensor& tensor) const {
    const PickleValue& storage = pickle_[value.items[0]];
    tensor.type = type_of(value);
    const auto found = file_.by_key.find(storage.text);
    if (found == file_.by_key.end())
      refuse("its storage " + quoted_key(storage.text) + " is not in the file");
    tensor.storage = found->second.index;
    const bool counts_bytes = value.items.size() > 3;
    const std::size_t unit = counts_bytes ? 1 : size_of(tensor.type),
                      values = found->second.size_bytes / unit;
    if (storage.integer < 0 || static_cast<std::size_t>(storage.integer) != values ||
        values * unit != found->second.size_bytes)
      refuse("its storage has " + std::to_string(found->second.size_bytes) + " bytes, not " +
             std::to_string(storage.integer) + " values");
    return found->second.size_bytes / size_of(tensor.type);
  }

  std::vector<std::int64_t> sizes(const PickleValue& tuple) const {
    std::vector<std::int64_t> numbers;
    for (const PickleValue::Place place : tuple.items) {
      const PickleValue& number = pickle_[place];
      if (number.kind != PickleValue::Kind::integer || number.integer < 0)
        refuse("a size or stride is not a number of at least 0");
      numbers.push_back(number.integer);
    }
    return numbers;
  }

  // The storage may end after the last value; strides of size-1 dimensions do not count.
  void check_extent(const TorchTensor& tensor, std::size_t values) const {
    const std::optional<std::size_t> bytes = bytes_of(tensor.type, tensor.shape);
    if (!bytes) refuse("its shape overflows");
    if (*bytes == 0) return;
    if (tensor.offset >= values) refuse("it starts after its storage");
    std::size_t left = values - 1 - tensor.offset;  // values of the storage after the current one
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      const auto steps = static_cast<std::size_t>(tensor.shape[i] - 1),
                 stride = static_cast<std::size_t>(tensor.strides[i]);
      if (steps > 0 && stride > left / steps) refuse("its strides reach outside its storage");
      left -= steps * stride;
    }
  }

  const Pickle& pickle_;
  const TorchContainer& file_;
  const PythonSource& python_;
  std::string_view name_;
};

}  // namespace

TorchTensorList::TorchTensorList(const TorchContainer& file, PythonSource python)
    : file_(file), python_(std::move(python)) {
  for (const auto& [_, storage] : file.by_key) stored_ += storage.size_bytes;
}

void TorchTensorList::add(std::string_view name, const PickleValue& tensor) {
  const auto refuse = [&](const std::string& found) {
    throw CheckpointError(
        {.place = file_.place + ", tensor " + quoted_key(name), .found = found, .remedy = kDamagedTorchFile});
  };
  tensors_.push_back(TensorReader(file_, python_, name).read(tensor));
  if (!names_.insert(tensors_.back().name).second) refuse("its name appears twice");
  named_ += tensors_.back().size_bytes();
  if (named_ > kMaxTimesShared * stored_) refuse("tensors share storages too often");
}

}  // namespace kindling
