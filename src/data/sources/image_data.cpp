#include "kindling/data/image_data.h"

#include <ATen/ops/div.h>

#include "kindling/base/error.h"

namespace kindling {

ImageData::ImageData(ImageScale scale, DataOptions options) : DataModule(std::move(options)), scale_(scale) {
  if (scale_.normalize && !((*scale_.normalize)[1] > 0))
    throw DataError({.place = "data.normalize",
                     .found = "the standard deviation " + std::to_string((*scale_.normalize)[1]),
                     .wanted = "[mean, std] with std > 0"});
}

const ImageData::Split& ImageData::split() {
  if (!split_) split_ = load();
  return *split_;
}

const LabelledImages& ImageData::validation_images() {
  return split().val.images.defined() || !options().val ? split().val : split().train;
}

std::shared_ptr<DataLoader> ImageData::train_dataloader() {
  return train_loader_of({split().train.images, split().train.labels});
}

std::shared_ptr<DataLoader> ImageData::val_dataloader() {
  const LabelledImages& val = validation_images();
  if (!val.images.defined()) return nullptr;
  return val_loader_of({val.images, val.labels});
}

Batch ImageData::on_after_batch_transfer(Batch batch) {
  at::Tensor& images = batch.tensors()[0];
  images =
      at::div(images, scale_.divisor);  // uint8 → float in the same pass, rounded as Python's x / divisor
  if (scale_.normalize) images.sub_((*scale_.normalize)[0]).div_((*scale_.normalize)[1]);
  at::Tensor& labels = batch.tensors()[1];
  labels = labels.to(at::kLong);
  return batch;
}

}  // namespace kindling
