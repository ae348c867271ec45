#pragma once

#include <kindling/config/options.h>
#include <kindling/data/data_module.h>

struct TwoMoonsOptions {
  std::int64_t num_samples = 2000;
  double noise = 0.1;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_samples", &TwoMoonsOptions::num_samples,
                      {.doc = "number of points; a fifth is for validation", .min = 10}),
      kindling::field("noise", &TwoMoonsOptions::noise, {.doc = "standard deviation", .min = 0}));
};

// Two interleaved half circles: batches {float [batch, 2], int64 [batch]}.
class TwoMoons : public kindling::DataModule {
 public:
  TwoMoons(TwoMoonsOptions options, kindling::DataOptions data_options);

  std::shared_ptr<kindling::DataLoader> train_dataloader() override { return train_loader_of(train_); }
  std::shared_ptr<kindling::DataLoader> val_dataloader() override { return val_loader_of(val_); }

 private:
  std::vector<at::Tensor> train_, val_;
};
