#include "training/replicas.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sum.h>

#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "training/run_difference.h"

namespace kindling {

void require_replicas(ProcessGroup& group, const Module& model, std::int64_t global_step) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  std::vector<at::Tensor> sums;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined()) continue;
    names.push_back(item.key());
    const at::Tensor sum = bits_of(item.value().detach()).sum(at::kLong);  // on its device
    sums.push_back(sums.empty() ? sum : sum.to(sums.front().device()));
  }
  if (sums.empty()) return;
  const at::Tensor own = at::stack(sums).cpu();
  const auto all = group.all_gather({static_cast<const char*>(own.const_data_ptr()), own.nbytes()});
  for (std::size_t i = 0; i < names.size(); ++i)
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      if (all[rank].substr(i * sizeof(std::int64_t), sizeof(std::int64_t)) ==
          all[0].substr(i * sizeof(std::int64_t), sizeof(std::int64_t)))
        continue;
      throw DistributedError(
          {.place = "the models of several processes, behind step " + std::to_string(global_step),
           .found = "parameter '" + names[i] + "' of process " + std::to_string(rank) +
                    " has other bits than that of process 0",
           .wanted = "the same in all processes",
           .remedy =
               "look for what changes it in one of them: a callback, random numbers, a branch on the rank"});
    }
}

}  // namespace kindling
