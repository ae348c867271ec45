#include "data/loading/resident_tensors.h"

#include <ATen/ops/index_select.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <typeinfo>
#include <utility>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/device/device_memory.h"
#include "kindling/tensors/move.h"

namespace kindling {
namespace {

// The fraction of the free memory that "auto" may use: the rest is for the model, its optimizer and its
// steps.
constexpr double kMaxFractionOfFreeMemory = 0.25;

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

// Returns why batches of a set are not just rows of tensors; empty if they are. A custom class may build its
// batches differently.
std::string why_not_rows(const Dataset& dataset) {
  if (typeid(dataset) != typeid(TensorDataset)) return "a data set that is not a TensorDataset";
  const auto& tensors = static_cast<const TensorDataset&>(dataset).tensors();
  // Writes to such a tensor cannot be detected.
  if (std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.is_inference(); }))
    return "a tensor that was created in inference mode";
  return {};
}

// Returns an empty string if they fit. If a GPU does not report its memory, the copy itself shows whether
// they fit.
std::string why_no_room(std::int64_t bytes, Device device, bool is_required) {
  const std::int64_t free = device_memory(device).free_bytes;
  const auto most =
      static_cast<std::int64_t>((is_required ? 1 : kMaxFractionOfFreeMemory) * static_cast<double>(free));
  if (bytes <= most || (free == 0 && is_required)) return {};
  return std::to_string(bytes) + " bytes of samples, but " + device.str() + " has only " +
         std::to_string(free) + " free bytes";
}

std::shared_ptr<const ResidentTensors> stay_on_host(const std::string& why, bool is_required) {
  if (is_required)
    throw DataError({.place = "data.resident = \"on\"",
                     .found = why,
                     .wanted = "tensors in memory (TensorDataset) that fit on the device",
                     .remedy = "use \"auto\" or \"off\": batches are then copied one by one"});
  log_info("data.resident: batches are copied one by one: " + why);
  return nullptr;
}

}  // namespace

ResidentTensors::ResidentTensors(const std::vector<at::Tensor>& tensors, Device device) {
  for (const at::Tensor& tensor : tensors) {
    sources_.push_back({tensor, tensor.const_data_ptr(), tensor._version()});
    there_.push_back(copy_to(tensor.detach(), device));
  }
}

std::shared_ptr<const ResidentTensors> ResidentTensors::of(const Dataset& dataset, Device device,
                                                           const std::string& wanted) {
  if (device.is_cpu() || wanted == "off") return nullptr;
  const bool is_required = wanted == "on";
  if (const std::string why = why_not_rows(dataset); !why.empty()) return stay_on_host(why, is_required);
  const auto& tensors = static_cast<const TensorDataset&>(dataset).tensors();
  const std::int64_t bytes = bytes_of(tensors);
  if (const std::string why = why_no_room(bytes, device, is_required); !why.empty())
    return stay_on_host(why, is_required);
  try {
    return std::shared_ptr<const ResidentTensors>(new ResidentTensors(tensors, device));
  } catch (const c10::OutOfMemoryError&) {  // the memory is fragmented
    return stay_on_host(std::to_string(bytes) + " bytes of samples, which do not fit on " + device.str(),
                        is_required);
  }
}

bool ResidentTensors::are_up_to_date() const {
  return std::ranges::all_of(sources_, [](const Source& source) {
    return source.tensor._version() == source.version && source.tensor.const_data_ptr() == source.bytes;
  });
}

Batch ResidentTensors::gather(const at::Tensor& indices) const {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : there_) rows.push_back(at::index_select(tensor, /*dim=*/0, indices));
  return Batch(std::move(rows));
}

}  // namespace kindling
