#include "metrics/exact_sums.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

namespace kindling {

at::Tensor cut(const at::Tensor& numbers, ExactParts parts) {
  constexpr std::int64_t kBitsOfPart = 24;
  const at::Tensor all = numbers.to(at::kDouble).unsqueeze(0);
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(all.dim()), 1);
  sizes.front() = parts.count;
  const at::Tensor units =
      at::arange(parts.count, all.options()).mul_(kBitsOfPart).add_(parts.lowest).exp2_().view(sizes);
  const at::Tensor above = all.div(units).trunc_().mul_(units);  // without the bits below each unit
  const std::int64_t last = parts.count - 1;
  return at::cat({above.narrow(0, 0, last).sub(above.narrow(0, 1, last)), above.narrow(0, last, 1)});
}

std::vector<double> sum_of_parts(std::span<const double> sums, ExactParts parts) {
  const std::size_t num_cells = sums.size() / static_cast<std::size_t>(parts.count);
  std::vector<double> cells(num_cells);
  for (std::size_t i = 0; i < sums.size(); ++i) cells[i % num_cells] += sums[i];
  return cells;
}

}  // namespace kindling
