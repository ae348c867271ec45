// Trains the model on the data and checks what both promise; `ctest` runs it.
#include <ATen/ATen.h>
#include <kindling/training/trainer.h>

#include <iostream>

#include "residual_mlp.h"
#include "two_moons.h"

namespace {

bool has_failed = false;

void expect(bool holds, const char* promise) {
  if (!holds) std::cerr << "not so: " << promise << "\n";
  has_failed = has_failed || !holds;
}

}  // namespace

int main() {
  at::manual_seed(0);
  const auto model = std::make_shared<ResidualMlp>(ResidualMlpOptions{.width = 16, .num_classes = 2});
  TwoMoons data({.num_samples = 1000}, {.batch_size = 50});
  expect(model->forward(at::rand({5, 2})).sizes() == at::IntArrayRef({5, 2}), "one logit per class");

  kindling::Trainer trainer({.max_epochs = 5});
  const kindling::FitResult result = trainer.fit(model, data);
  expect(result.progress.global_step == 5 * 16, "800 of the samples are for training");
  expect(result.metrics.at("val_acc") > 0.95, "the model learns the data in five epochs");
  return has_failed ? 1 : 0;
}
