#include "cli/data/image_samples.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "cli/data/label_text.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/data/data_module.h"
#include "kindling/data/stage.h"
#include "kindling/data/transformed_data.h"
#include "kindling/tensors/move.h"

namespace kindling {
namespace {

struct FirstBatch {
  Batch loaded{};        // as it comes from the loader
  at::Tensor indices{};  // of its samples in the data set
  at::Tensor images{};   // its first tensor as training sees it, on the CPU
};

FirstBatch first_training_batch(DataModule& data, std::int64_t num_samples) {
  const std::shared_ptr<DataLoader> loader = data.train_dataloader();
  if (!loader) throw DataError({.place = "data", .found = "the data has no train_dataloader()"});
  DataLoader::Cursor cursor(*loader);
  cursor.keep_order();
  cursor.take_batches_of(std::min(num_samples, loader->num_samples()));
  cursor.seek(0);
  FirstBatch first;
  cursor.next(first.loaded);
  first.indices = cursor.indices();
  first.images = data.on_after_batch_transfer(copy_to(first.loaded, cpu()), Stage::train).tensors()[0];
  return first;
}

bool are_images(const at::Tensor& images) {
  return images.dim() == 4 && (images.size(1) == 1 || images.size(1) == 3) && images.numel() > 0 &&
         !images.is_complex();
}

// The values that become black and white.
struct ShownRange {
  double black = 0, white = 1;
};

ShownRange range_of(const at::Tensor& images) {
  constexpr double kRounding = 1e-4;  // of transforms that interpolate
  const at::Tensor finite = images.masked_select(at::isfinite(images));
  if (finite.numel() == 0) return {};
  const double min = finite.min().item<double>(), max = finite.max().item<double>();
  if (min >= -kRounding && max <= 1 + kRounding) return {};
  return {min, max > min ? max : min + 1};
}

Image image_of(const at::Tensor& planes, const ShownRange& range) {
  const at::Tensor scaled = planes.permute({1, 2, 0})
                                .to(at::kDouble)
                                .sub(range.black)
                                .mul(255 / (range.white - range.black))
                                .nan_to_num(0)
                                .round()
                                .clamp(0, 255)
                                .to(at::kByte)
                                .contiguous();
  Image image{.width = scaled.size(1), .height = scaled.size(0), .channels = scaled.size(2), .pixels = {}};
  const std::uint8_t* const first = scaled.const_data_ptr<std::uint8_t>();
  image.pixels.assign(first, first + scaled.numel());
  return image;
}

std::vector<Image> images_of(const at::Tensor& batch, const char* what, std::vector<std::string>& notes) {
  const ShownRange range = range_of(batch);
  if (range.black != 0 || range.white != 1)
    notes.push_back(std::string(what) + ": the values " + short_text(range.black, 4) + " to " +
                    short_text(range.white, 4) + " are shown as black to white");
  std::vector<Image> images;
  for (std::int64_t i = 0; i < batch.size(0); ++i) images.push_back(image_of(batch[i], range));
  return images;
}

std::vector<std::string> captions_of(const FirstBatch& first, const std::vector<std::string>& classes) {
  const bool has_labels = first.loaded.tensors().size() > 1;
  std::vector<std::string> captions;
  for (std::int64_t i = 0; i < first.images.size(0); ++i) {
    const std::string label = has_labels ? label_text(first.loaded.tensors().back()[i], classes) : "";
    captions.push_back(std::to_string(first.indices[i].item<std::int64_t>()) +
                       (label.empty() ? "" : ": " + label));
  }
  return captions;
}

constexpr std::int64_t kMostInGridRow = 8;
constexpr std::uint8_t kWhite = 255;

// Copies the image to a position in the grid.
void draw_image(Image& grid, const Image& image, std::int64_t top, std::int64_t left) {
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x)
      for (std::int64_t c = 0; c < grid.channels; ++c)
        grid.pixels[static_cast<std::size_t>(((top + y) * grid.width + left + x) * grid.channels + c)] =
            image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels +
                                                  (image.channels == 1 ? 0 : c))];
}

}  // namespace

std::optional<ImageSamples> image_samples(const RunConfig& config, std::int64_t num_samples) {
  const std::shared_ptr<DataModule> data = config.make_untransformed_data();
  const FirstBatch first = first_training_batch(*data, num_samples);
  if (!are_images(first.images)) return std::nullopt;
  ImageSamples samples;
  samples.captions = captions_of(first, data->class_names());
  samples.before = images_of(first.images, "images", samples.notes);
  const StageTransforms transforms = config.transforms();
  if (!transforms.train) return samples;
  TransformedData transformed(data, transforms);
  const at::Tensor images = first_training_batch(transformed, num_samples).images;
  if (are_images(images)) samples.after = images_of(images, "after the transforms", samples.notes);
  return samples;
}

Image image_grid(const ImageSamples& samples) {
  std::int64_t height = 0, width = 0, channels = 1;
  for (const std::vector<Image>* images : {&samples.before, &samples.after})
    for (const Image& image : *images) {
      height = std::max(height, image.height);
      width = std::max(width, image.width);
      channels = std::max(channels, image.channels);
    }
  const auto count = static_cast<std::int64_t>(samples.before.size());
  const std::int64_t per_row = std::min(count, kMostInGridRow), versions = samples.after.empty() ? 1 : 2;
  const std::int64_t rows = versions * ((count + per_row - 1) / per_row);
  Image grid{.width = per_row * (width + kGridGap) + kGridGap,
             .height = rows * (height + kGridGap) + kGridGap,
             .channels = channels,
             .pixels = {}};
  grid.pixels.assign(static_cast<std::size_t>(grid.width * grid.height * channels), kWhite);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t top = kGridGap + versions * (i / per_row) * (height + kGridGap);
    const std::int64_t left = kGridGap + (i % per_row) * (width + kGridGap);
    const auto sample = static_cast<std::size_t>(i);
    draw_image(grid, samples.before[sample], top, left);
    if (versions == 2) draw_image(grid, samples.after[sample], top + height + kGridGap, left);
  }
  return grid;
}

}  // namespace kindling
