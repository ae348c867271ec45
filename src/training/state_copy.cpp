#include "training/state_copy.h"

#include "kindling/tensors/move.h"

namespace kindling {

void StateCopy::take(const StateDict& state) {
  auto former = std::exchange(copy_.tensors, {});
  copy_.metadata = state.metadata;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const auto& [name, tensor] = state.tensors[i];
    const bool fits = i < former.size() && former[i].first == name &&
                      former[i].second.sizes() == tensor.sizes() &&
                      former[i].second.scalar_type() == tensor.scalar_type();
    if (fits) write_values(former[i].second, tensor.detach());
    copy_.tensors.emplace_back(name, fits ? former[i].second : copy_to(tensor.detach(), cpu()));
  }
}

}  // namespace kindling
