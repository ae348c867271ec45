#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace kindling {

// A length along a direction, and what the function is there.
struct LinePoint {
  double t = 0, loss = 0;
  at::Tensor gradient{};
  double slope = 0;  // along the direction
};

struct LineSearchResult {
  LinePoint point;
  std::int64_t num_evaluations = 0;
};

// A point that meets the strong Wolfe conditions, c1 = 1e-4, c2 = 0.9 (Nocedal, Wright, 2006, algorithms 3.5
// and 3.6, with cubic interpolation; step by step torch.optim.lbfgs._strong_wolfe). `start` has t = 0;
// `first` is the length tried first, `size` the largest number of the direction. Stops after about max_steps
// evaluations with the best point seen.
LineSearchResult strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start,
                              double first, double size, std::int64_t max_steps);

}  // namespace kindling
