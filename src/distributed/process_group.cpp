#include "kindling/distributed/process_group.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "distributed/packed_texts.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

std::string shown(const std::string& value) { return value.empty() ? "nothing" : "'" + value + "'"; }

const std::string* find(const ProcessGroup::NamedTexts& values, const std::string& name) {
  const auto found = std::ranges::find(values, name, [](const auto& item) { return item.first; });
  return found == values.end() ? nullptr : &found->second;
}

// Returns the first name whose value differs in `theirs`; empty if there is none.
std::string first_difference(const ProcessGroup::NamedTexts& ours, const ProcessGroup::NamedTexts& theirs) {
  for (const auto& [name, value] : ours)
    if (const std::string* other = find(theirs, name); other == nullptr || *other != value) return name;
  for (const auto& [name, value] : theirs)
    if (find(ours, name) == nullptr) return name;
  return {};
}

std::string value_of(const ProcessGroup::NamedTexts& values, const std::string& name) {
  const std::string* value = find(values, name);
  return value == nullptr ? "nothing" : shown(*value);
}

}  // namespace

ProcessGroup::ProcessGroup(std::int64_t rank, std::int64_t size, std::int64_t local_rank,
                           DistributedOptions options)
    : rank_(rank), size_(size), local_rank_(local_rank), options_(std::move(options)) {
  validate(options_, "DistributedOptions");
}

ProcessGroup::~ProcessGroup() = default;

std::shared_ptr<ProcessGroup> ProcessGroup::from_environment(const DistributedOptions& options) {
  const auto place = launch_environment();
  return place ? join(*place, options) : nullptr;
}

// Tensors of one type are sent together: starting a transfer costs more than sending a small tensor.
void ProcessGroup::broadcast(std::span<const at::Tensor> tensors, std::int64_t root) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> left(tensors.begin(), tensors.end());
  std::erase_if(left, [](const at::Tensor& tensor) { return !tensor.defined() || tensor.numel() == 0; });
  while (!left.empty()) {
    const at::TensorOptions type = left.front().options();
    const auto others = std::stable_partition(left.begin(), left.end(), [&](const at::Tensor& tensor) {
      return tensor.options().type_equal(type) && tensor.device() == type.device();
    });
    const std::vector<at::Tensor> alike(left.begin(), others);
    std::int64_t total = 0;
    for (const at::Tensor& tensor : alike) total += tensor.numel();
    const at::Tensor flat = at::empty({total}, type.requires_grad(false));
    std::int64_t at = 0;
    for (const at::Tensor& tensor : alike) {
      if (rank_ == root) flat.narrow(0, at, tensor.numel()).view(tensor.sizes()).copy_(tensor);
      at += tensor.numel();
    }
    start_broadcast(flat, root)->wait();
    at = 0;
    for (const at::Tensor& tensor : alike) {
      if (rank_ != root) tensor.copy_(flat.narrow(0, at, tensor.numel()).view(tensor.sizes()));
      at += tensor.numel();
    }
    left.erase(left.begin(), others);
  }
}

void ProcessGroup::require_same(const std::string& place, const NamedTexts& values) {
  std::vector<std::string> flat;
  for (const auto& [name, value] : values) flat.insert(flat.end(), {name, value});
  const auto gathered = all_gather(packed(flat));
  const auto values_of = [&](std::size_t rank) {
    const auto texts = unpacked(gathered[rank]);
    NamedTexts named;
    for (std::size_t i = 0; i + 1 < texts.size(); i += 2) named.emplace_back(texts[i], texts[i + 1]);
    return named;
  };
  const NamedTexts first = values_of(0);
  for (std::size_t rank = 1; rank < gathered.size(); ++rank) {
    const NamedTexts others = values_of(rank);
    const std::string name = first_difference(first, others);
    if (name.empty()) continue;
    throw DistributedError({.place = place,
                            .found = name + " is " + value_of(others, name) + " on rank " +
                                     std::to_string(rank) + " and " + value_of(first, name) + " on rank 0",
                            .wanted = "the same on all ranks"});
  }
}

}  // namespace kindling
