#include "training/callbacks/state_copy.h"

#include <cstring>

#include "kindling/tensors/move.h"

namespace kindling {
namespace {

// A small tensor is copied faster than an operator is called; large ones are copied by several threads.
bool can_be_copied_at_once(const at::Tensor& target, const at::Tensor& values) {
  constexpr std::size_t kSmallBytes = std::size_t{1} << 17;
  const std::size_t bytes = values.nbytes();
  return 0 < bytes && bytes <= kSmallBytes && values.is_cpu() && values.is_contiguous() &&
         target.is_contiguous();
}

// Of the same shape and dtype.
void copy_values(const at::Tensor& host_target, const at::Tensor& values) {
  if (can_be_copied_at_once(host_target, values))
    std::memcpy(host_target.mutable_data_ptr(), values.const_data_ptr(), values.nbytes());
  else
    write_values(host_target, values.detach());
}

}  // namespace

void StateCopy::take(const StateDict& state) {
  auto former = std::exchange(copy_.tensors, {});
  copy_.metadata = state.metadata;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const auto& [name, tensor] = state.tensors[i];
    const bool fits = i < former.size() && former[i].first == name &&
                      former[i].second.sizes() == tensor.sizes() &&
                      former[i].second.scalar_type() == tensor.scalar_type();
    if (fits) copy_values(former[i].second, tensor);
    copy_.tensors.emplace_back(name, fits ? former[i].second : copy_to(tensor.detach(), cpu()));
  }
}

}  // namespace kindling
