#pragma once

#include <cstdint>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

struct LenetOptions {
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_classes", &LenetOptions::num_classes, {.doc = "number of classes", .min = 1}));
};

// The LeNet-5 of Dive into Deep Learning (LeCun et al., 1998, with plain sigmoids and a plain output layer):
// images [batch, channels, height, width], 28 x 28 or larger → logits [batch, num_classes].
class KINDLING_API Lenet : public SequentialNet<Classifier> {
 public:
  explicit Lenet(LenetOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(Lenet); }
};

}  // namespace kindling
