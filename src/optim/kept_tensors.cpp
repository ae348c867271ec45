#include "optim/kept_tensors.h"

#include <ATen/ops/ne.h>
#include <ATen/ops/where.h>

#include <unordered_map>
#include <unordered_set>

#include "optim/foreach_copies.h"

namespace kindling {

namespace {

constexpr std::size_t kNothing = static_cast<std::size_t>(-1);

}  // namespace

KeptTensors::KeptTensors(const std::vector<at::Tensor*>& places) {
  std::vector<at::Tensor> tensors;
  std::unordered_map<const at::TensorImpl*, std::size_t> known;
  for (const at::Tensor* place : places) {
    if (!place->defined()) {
      copy_of_.push_back(kNothing);
      continue;
    }
    const auto [found, is_new] = known.emplace(place->unsafeGetTensorImpl(), tensors.size());
    if (is_new) tensors.push_back(*place);
    copy_of_.push_back(found->second);
  }
  copies_ = foreach_copies(tensors);
}

void KeptTensors::put_back(const std::vector<at::Tensor*>& places, const at::Tensor& found_inf) const {
  const at::Tensor is_bad = found_inf.ne(0);
  std::unordered_set<const at::TensorImpl*> done;
  for (std::size_t i = 0; i < places.size(); ++i) {
    at::Tensor& now = *places[i];
    if (copy_of_[i] == kNothing || !done.insert(now.unsafeGetTensorImpl()).second) continue;
    at::where_out(now, is_bad, copies_[copy_of_[i]], now);
  }
}

}  // namespace kindling
