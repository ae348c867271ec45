#include "kindling/data/image_data.h"

#include <ATen/ops/div.h>

#include "data/sources/image_scale.h"
#include "kindling/base/error.h"

namespace kindling {

void check_image_scale(const ImageScale& scale) {
  if (scale.normalize && !((*scale.normalize)[1] > 0))
    throw DataError({.place = "data.normalize",
                     .found = "the standard deviation " + std::to_string((*scale.normalize)[1]),
                     .wanted = "[mean, std] with std > 0"});
}

Batch scaled_images(Batch batch, const ImageScale& scale) {
  at::Tensor& images = batch.tensors()[0];
  images = at::div(images, scale.divisor);  // uint8 → float in the same pass, rounded as Python's x / divisor
  if (scale.normalize) images.sub_((*scale.normalize)[0]).div_((*scale.normalize)[1]);
  if (batch.tensors().size() > 1) batch.tensors()[1] = batch.tensors()[1].to(at::kLong);
  return batch;
}

ImageData::ImageData(ImageScale scale, DataOptions options) : DataModule(std::move(options)), scale_(scale) {
  check_image_scale(scale_);
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

Batch ImageData::on_after_batch_transfer(Batch batch) { return scaled_images(std::move(batch), scale_); }

}  // namespace kindling
