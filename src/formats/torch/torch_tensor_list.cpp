#include "formats/torch/torch_tensor_list.h"

#include <algorithm>
#include <filesystem>
#include <optional>

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
  TensorReader(const Pickle& pickle, const TorchStorages& storages, const std::string& place,
               std::string_view name)
      : pickle_(pickle), storages_(storages), place_(place), name_(name) {}

  TorchTensor read(const PickleValue& value) const {
    TorchTensor tensor{.name = std::string(name_)};
    if (!is_utf8(name_)) refuse("its name is not valid UTF-8");
    const std::size_t values = take_storage(pickle_[value.items[0]], tensor);
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
  [[noreturn]] void refuse(const std::string& found) const {
    refuse_torch(place_, ", tensor " + quoted_key(name_), found);
  }

  // Returns the number of the storage's values.
  std::size_t take_storage(const PickleValue& storage, TorchTensor& tensor) const {
    const std::string_view type = pickle_[storage.items[0]].text;
    tensor.type = tensor_type_with(&TensorTypeRow::storage, type)->type;
    const auto found = storages_.find(storage.text);
    if (found == storages_.end())
      refuse("its storage " + quoted_key(storage.text) + " is not in the archive");
    tensor.storage = found->second.index;
    const std::size_t values = found->second.size_bytes / size_of(tensor.type);
    if (storage.integer < 0 || static_cast<std::size_t>(storage.integer) != values ||
        values * size_of(tensor.type) != found->second.size_bytes)
      refuse("its storage has " + std::to_string(found->second.size_bytes) + " bytes, not " +
             std::to_string(storage.integer) + " values");
    return values;
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
    if (*bytes > values * size_of(tensor.type))
      refuse("it has more values than its storage: " + std::to_string(*bytes / size_of(tensor.type)) +
             " of " + std::to_string(values));
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
  const TorchStorages& storages_;
  const std::string& place_;
  std::string_view name_;
};

}  // namespace

std::string conversion_in_python(const std::string& place) { return conversions_in_python(place).of_tensors; }

PickleRemedies conversions_in_python(const std::string& place) {
  const std::filesystem::path file = std::filesystem::path(place).filename();
  const std::string in = json_string(file.string()),
                    out = json_string(std::filesystem::path(file).replace_extension(".safetensors").string());
  const auto load = [&](const char* weights_only) {
    return "import torch, safetensors.torch; sd = torch.load(" + in +
           ", map_location=\"cpu\", weights_only=" + weights_only + "); ";
  };
  const auto save = [&](const char* tensor) {
    return std::string("safetensors.torch.save_file({name: ") + tensor +
           ".contiguous().clone() for name, t in sd.items() if torch.is_tensor(t)}, " + out + ")";
  };
  return {.of_tensors = "convert it in Python: " + load("True") + save("t"),
          .of_complex = "convert it in Python: " + load("True") +
                        save("(t.to(torch.complex64) if t.is_complex() else t)"),
          .of_objects =
              "convert it in Python, which runs code of the file, so only if you trust it: " + load("False") +
              "sd = sd.state_dict() if hasattr(sd, \"state_dict\") else sd; " + save("t")};
}

std::string quoted_key(std::string_view key) { return json_string(key.substr(0, 100)); }

void refuse_torch(const std::string& place, const std::string& where, const std::string& found,
                  const std::string& wanted) {
  throw CheckpointError(
      {.place = place + where, .found = found, .wanted = wanted, .remedy = conversion_in_python(place)});
}

TorchTensorList::TorchTensorList(const Pickle& pickle, const TorchStorages& storages,
                                 const std::string& place)
    : pickle_(pickle), storages_(storages), place_(place) {
  for (const auto& [_, storage] : storages) stored_ += storage.size_bytes;
}

void TorchTensorList::add(std::string_view name, const PickleValue& tensor) {
  tensors_.push_back(TensorReader(pickle_, storages_, place_, name).read(tensor));
  if (!names_.insert(tensors_.back().name).second)
    refuse_torch(place_, ", tensor " + quoted_key(name), "its name appears twice");
  named_ += tensors_.back().size_bytes();
  if (named_ > kMaxTimesShared * stored_)
    refuse_torch(place_, ", tensor " + quoted_key(name), "tensors share storages too often");
}

}  // namespace kindling
