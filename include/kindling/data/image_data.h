#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <optional>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"

namespace kindling {

// Images and their classes, as stored in files.
struct LabelledImages {
  at::Tensor images;  // uint8 [n, channels, height, width]
  at::Tensor labels;  // uint8 or int64 [n]
};

// How bytes become numbers on the device: image / divisor, then (image - mean) / std.
struct ImageScale {
  double divisor = 255;
  std::optional<std::array<double, 2>> normalize{};  // mean, standard deviation
};

// Base of data sets of labelled images. They stay uint8 until they are on the device, where a batch becomes
// {float [batch, channels, height, width], int64 [batch]}.
class KINDLING_API ImageData : public DataModule {
 public:
  ImageData(ImageScale scale, DataOptions options);

  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override;

 protected:
  // Reads the images on first use; `val` without images: no default validation split.
  struct Split {
    LabelledImages train, val;
  };
  virtual Split load() = 0;

 private:
  const Split& split();
  // Without a default split, the range `val` counts in the training samples.
  const LabelledImages& validation_images();

  ImageScale scale_;
  std::optional<Split> split_;
};

}  // namespace kindling
