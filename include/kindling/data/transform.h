#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Changes a batch on its device with LibTorch's operators: normalization, augmentation. The first tensor of
// the batch is images, floating-point [batch, channels, height, width]; labels, if any, are the last tensor.
//
// Transforms that move pixels (crops, resizing, mirror images, affine maps, mix_up, cut_mix) move those of
// every other tensor [batch, …, height, width] with the height and width of the images, too, with the same
// random numbers: masks, target images, second images. Floating-point values are interpolated as those of the
// images; integers and booleans are those of the nearest pixel. Tensors [batch] and [batch, values] have no
// pixels and stay as they are. Any other tensor is refused: its pixels would no longer fit the images.
// Transforms that change values only (normalize, color_jitter, random_erasing) change the images alone.
//
// Random decisions come from `uniforms`, which the caller makes from the identity of each sample. A sample's
// result then depends neither on the batch it is in nor on a generator of the device. Implementations must
// not read a tensor on the host, because that makes the host wait in every step.
class KINDLING_API Transform {
 public:
  virtual ~Transform();

  // Returns how many random numbers each sample needs; 0: the transform is deterministic.
  virtual std::int64_t num_random() const { return 0; }

  // Returns the transformed batch. `uniforms`: uniform in [0, 1), float32 or float64 [batch, num_random()] on
  // the device of the images; may be undefined if num_random() is 0. Throws DataError for tensors of another
  // shape or dtype; checks no values.
  virtual Batch apply(Batch batch, const at::Tensor& uniforms) const = 0;
};

// Applies transforms in order. Each takes its columns of `uniforms` in the same order.
class KINDLING_API Compose : public Transform {
 public:
  // Throws ConfigError for a null pointer.
  explicit Compose(std::vector<std::shared_ptr<const Transform>> parts);

  std::int64_t num_random() const override { return num_random_; }
  Batch apply(Batch batch, const at::Tensor& uniforms) const override;

 private:
  std::vector<std::shared_ptr<const Transform>> parts_;
  std::int64_t num_random_ = 0;
};

}  // namespace kindling
