#pragma once

#include <cstdint>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

struct MlpOptions {
  std::vector<std::int64_t> hidden{256};
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(
      kindling::field("hidden", &MlpOptions::hidden, {.doc = "widths of the hidden layers", .min = 1}),
      kindling::field("num_classes", &MlpOptions::num_classes, {.doc = "number of classes", .min = 1}));
};

// The multilayer perceptron of Dive into Deep Learning: flatten, then linear layers with ReLU between them.
// [batch, …] → logits [batch, num_classes].
class KINDLING_API Mlp : public SequentialNet<Classifier> {
 public:
  explicit Mlp(MlpOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(Mlp); }
};

}  // namespace kindling
