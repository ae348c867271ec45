#include "data/transforms/random_boxes.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <cmath>
#include <utility>

#include "data/transforms/random_numbers.h"

namespace kindling {

RandomBoxes random_boxes(const at::Tensor& uniforms, const BoxOptions& options) {
  const auto area = static_cast<double>(options.height * options.width);
  const at::Tensor areas = uniform_between(uniforms.narrow(1, 0, kBoxTries), options.scale) * area;
  const at::Tensor ratios = uniform_between(uniforms.narrow(1, kBoxTries, kBoxTries),
                                            {std::log(options.ratio[0]), std::log(options.ratio[1])})
                                .exp();
  at::Tensor heights = (areas / ratios).sqrt().round(), widths = (areas * ratios).sqrt().round();
  if (options.is_erasing) std::swap(heights, widths);
  const std::int64_t shift = options.is_erasing ? 1 : 0;
  const auto fit = [&](const at::Tensor& sides, std::int64_t side_of_image) {
    return (sides >= 1 - shift) & (sides <= side_of_image - shift);
  };
  const at::Tensor fits = fit(heights, options.height) & fit(widths, options.width);
  const at::Tensor first = fits & (fits.cumsum(1) == 1);
  RandomBoxes boxes;
  // A sum of one number and zeros selects it without an index that the host or a search would need.
  boxes.height = (heights * first).sum(1);
  boxes.width = (widths * first).sum(1);
  boxes.found = fits.any(1);
  boxes.top = uniform_index(uniform_column(uniforms, 2 * kBoxTries), options.height + 1 - boxes.height);
  boxes.left = uniform_index(uniform_column(uniforms, 2 * kBoxTries + 1), options.width + 1 - boxes.width);
  return boxes;
}

}  // namespace kindling
