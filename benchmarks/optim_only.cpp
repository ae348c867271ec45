#include "optim_only.h"

#include <ATen/Context.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <kindling/optim/adam.h>
#include <kindling/optim/sgd.h>

#include <memory>
#include <utility>

#include "clock.h"
#include "report.h"

namespace kindling_bench {
namespace {

using Shapes = std::vector<std::vector<std::int64_t>>;

struct Parameters {
  std::string name;
  Shapes shapes;
  int steps;  // of a repeat
};

std::vector<Parameters> parameter_sets() {
  Shapes small{{64, 20}, {64}};
  for (int i = 0; i < 15; ++i) small.insert(small.end(), {{64, 64}, {64}});
  return {{"small32", small, 300},
          {"mid300", Shapes(300, {64, 64}), 30},
          {"large4", Shapes(4, {1024, 1024}), 10}};
}

using Made = std::unique_ptr<kindling::Optimizer>;
using Tensors = std::vector<at::Tensor>;

Made adam(Tensors parameters) {
  return std::make_unique<kindling::Adam>(std::move(parameters), kindling::AdamOptions{.lr = 1e-3});
}
Made adamw(Tensors parameters) {
  return std::make_unique<kindling::AdamW>(std::move(parameters), kindling::AdamWOptions{.lr = 1e-3});
}
Made sgd(Tensors parameters) {
  const kindling::SgdOptions options{.lr = 1e-2, .momentum = 0.9};
  return std::make_unique<kindling::Sgd>(std::move(parameters), options);
}

Tensors with_gradients(const Shapes& shapes) {
  at::manual_seed(0);
  Tensors parameters;
  for (const auto& shape : shapes) parameters.push_back(at::randn(shape).requires_grad_());
  for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::randn_like(parameter);
  return parameters;
}

void measure(const Options& options, const Parameters& set, Made (*make)(Tensors)) {
  const auto optimizer = make(with_gradients(set.shapes));
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    for (int step = 0; step < set.steps; ++step) optimizer->step();
  }
  clock.tick();
  report_times(options, clock, "us/step", set.steps, {});
}

}  // namespace

void optim_only(const Options& options) {
  for (const Parameters& set : parameter_sets())
    for (const auto& [name, make] :
         {std::pair<std::string, Made (*)(Tensors)>{"adam", &adam}, {"adamw", &adamw}, {"sgd", &sgd}}) {
      Options one = options;
      one.variant = name + "/" + set.name;
      if (options.variant.empty() || options.variant == one.variant) measure(one, set, make);
    }
}

}  // namespace kindling_bench
