#include "training/loop/sample_pictures.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/cat.h>

#include <algorithm>
#include <cstdint>

#include "kindling/data/dataset.h"

namespace kindling {
namespace {

constexpr std::int64_t kMostPixels = 128;  // of a side
constexpr int kDark = 64;                  // images without a value from here on are brightened

// `image`: uint8 [1, channels, height, width].
at::Tensor reduced_picture(const at::Tensor& image) {
  const std::int64_t factor = (std::max(image.size(2), image.size(3)) + kMostPixels - 1) / kMostPixels;
  if (factor == 1) return image;
  return at::avg_pool2d(image.to(at::kFloat), factor, factor, /*padding=*/0, /*ceil_mode=*/true,
                        /*count_include_pad=*/false)
      .round_()
      .to(at::kByte);
}

bool is_picture(const at::Tensor& image) {
  return image.scalar_type() == at::kByte && image.dim() == 4 && (image.size(1) == 1 || image.size(1) == 3) &&
         image.numel() > 0;
}

}  // namespace

at::Tensor sample_pictures(const std::shared_ptr<DataLoader>& loader,
                           const std::vector<std::int64_t>& samples) {
  // A worker of the loader may still be reading ahead.
  if (!loader || samples.empty() || !loader->dataset().is_thread_safe()) return {};
  std::vector<at::Tensor> pictures;
  for (const std::int64_t sample : samples) {
    const at::Tensor image = loader->dataset().slice(sample, sample + 1).tensors()[0];
    if (!is_picture(image)) return {};
    pictures.push_back(reduced_picture(image));
    if (pictures.back().sizes() != pictures.front().sizes()) return {};
  }
  const at::Tensor all = at::cat(pictures).permute({0, 2, 3, 1}).contiguous();
  // Images of few levels, such as 0 to 16, would be black.
  const int largest = all.max().item<std::uint8_t>();
  return largest > 0 && largest < kDark ? all.mul(255 / largest) : all;
}

}  // namespace kindling
