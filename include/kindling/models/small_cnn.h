#pragma once

#include <cstdint>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

struct SmallCnnOptions {
  std::vector<std::int64_t> channels{16, 32};
  std::int64_t hidden = 64;
  double dropout = 0.25;
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(
      kindling::field("channels", &SmallCnnOptions::channels,
                      {.doc = "channels of the convolutions", .min = 1}),
      kindling::field("hidden", &SmallCnnOptions::hidden,
                      {.doc = "width of the hidden linear layer", .min = 1}),
      kindling::field(
          "dropout", &SmallCnnOptions::dropout,
          {.doc = "dropout probability before the last layer", .min = 0, .max = 1, .max_excluded = true}),
      kindling::field("num_classes", &SmallCnnOptions::num_classes, {.doc = "number of classes", .min = 1}));
};

// A small convolutional network for small images: 3 x 3 convolutions with batch normalization and ReLU, one
// max-pooling, a hidden layer with dropout. [batch, channels, height, width] → logits [batch, num_classes].
class KINDLING_API SmallCnn : public SequentialNet<Classifier> {
 public:
  explicit SmallCnn(SmallCnnOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(SmallCnn); }
};

}  // namespace kindling
