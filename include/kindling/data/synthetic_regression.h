#pragma once

#include <cstdint>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"

namespace kindling {

struct SyntheticRegressionOptions {
  std::vector<double> w{2, -3.4};
  double b = 4.2;
  double noise = 0.01;  // standard deviation
  std::int64_t num_train = 1000;
  std::int64_t num_val = 1000;
  std::int64_t data_seed = 0;

  static constexpr auto fields =
      kindling::fields(kindling::field("w", &SyntheticRegressionOptions::w, {.doc = "true weights"}),
                       kindling::field("b", &SyntheticRegressionOptions::b, {.doc = "true bias"}),
                       kindling::field("noise", &SyntheticRegressionOptions::noise,
                                       {.doc = "standard deviation of the noise", .min = 0}),
                       kindling::field("num_train", &SyntheticRegressionOptions::num_train,
                                       {.doc = "number of training samples", .min = 1}),
                       kindling::field("num_val", &SyntheticRegressionOptions::num_val,
                                       {.doc = "number of validation samples", .min = 1}),
                       kindling::field("data_seed", &SyntheticRegressionOptions::data_seed,
                                       {.doc = "seed of the samples", .min = 0}));
};

// The synthetic data of Dive into Deep Learning, y = Xw + b + noise with X ~ N(0, 1): batches {float [batch,
// len(w)], float [batch, 1]}.
class KINDLING_API SyntheticRegression : public DataModule {
 public:
  explicit SyntheticRegression(SyntheticRegressionOptions options = {}, DataOptions data_options = {});

  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;

 private:
  SyntheticRegressionOptions options_;
  at::Tensor inputs_, labels_;  // [num_train + num_val, …]
};

}  // namespace kindling
