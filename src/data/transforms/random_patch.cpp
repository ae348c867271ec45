#include "data/transforms/random_patch.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <vector>

namespace kindling {

bool is_field(at::IntArrayRef sizes, at::IntArrayRef space) {
  return sizes.size() > space.size() && sizes.slice(sizes.size() - space.size()) == space;
}

at::Tensor random_patches(const at::Tensor& fields, const at::Tensor& numbers, at::IntArrayRef patch) {
  const auto num_dims = static_cast<std::int64_t>(patch.size());
  const std::int64_t batch = fields.size(0);
  std::vector<std::int64_t> sizes = fields.sizes().vec();
  // The numbers of the cells of each patch, row by row.
  at::Tensor cells = at::zeros({batch, 1}, numbers.options().dtype(at::kLong));
  for (std::int64_t i = 0; i < num_dims; ++i) {
    std::int64_t& size = sizes[static_cast<std::size_t>(fields.dim() - num_dims + i)];
    const std::int64_t wanted = patch[static_cast<std::size_t>(i)], last = size - wanted;
    // Rounded up, the largest numbers would be one too many.
    const at::Tensor start = numbers.select(1, i).mul(last + 1).to(at::kLong).clamp_max_(last),
                     places = at::arange(wanted, start.options()).add(start.unsqueeze(1));
    cells = cells.mul(size).unsqueeze(2).add(places.unsqueeze(1)).flatten(1);
    size = wanted;
  }
  const at::Tensor all = fields.flatten(fields.dim() - num_dims),
                   channels = all.view({batch, -1, all.size(-1)});
  return channels.gather(2, cells.unsqueeze(1).expand({batch, channels.size(1), cells.size(1)})).view(sizes);
}

}  // namespace kindling
