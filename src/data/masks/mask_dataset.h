#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "data/masks/mask_pairs.h"
#include "data/masks/mask_values.h"
#include "data/sources/image_file_dataset.h"
#include "kindling/data/dataset.h"

namespace kindling {

// Some of the pairs, decoded when they are gathered: {uint8 [batch, channels, height, width], int16 [batch,
// height, width]}; of pairs without masks the images alone.
class MaskDataset : public Dataset {
 public:
  MaskDataset(std::shared_ptr<const MaskPairs> pairs, std::shared_ptr<const MaskValues> values,
              std::vector<std::int64_t> samples, ImageFormat format);

  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  void gather(const at::Tensor& indices, Batch& batch) const override;
  bool is_thread_safe() const override { return true; }

 private:
  void decode_mask(std::size_t pair, const ImageSize& size, std::int16_t* labels) const;

  std::shared_ptr<const MaskPairs> pairs_;
  std::shared_ptr<const MaskValues> values_;
  std::vector<std::int64_t> samples_;  // indices of pairs
  ImageFormat format_;
};

}  // namespace kindling
