// A directory of images, and what ImageFolder reads from it.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/image_folder.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/scratch.h"

namespace kindling {

class ImageFolders : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  }
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  // All samples of a loader in one batch, in order.
  static Batch all_of(DataLoader& loader) {
    loader.start_epoch(0);
    Batch batch;
    loader.next(batch);
    return batch;
  }
  Batch all_of(const ImageFolderOptions& options) const {
    ImageFolder data(options, {.batch_size = 1000, .shuffle = false});
    data.prepare();
    return all_of(*data.train_dataloader());
  }
  // Without the directory of the test.
  std::string without_folder(std::string text) const {
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  std::string refusal_of(const std::function<void()>& call) const {
    try {
      call();
    } catch (const Error& error) {
      return without_folder(error.what());
    }
    return "(no error)";
  }
  std::string refusal(const ImageFolderOptions& options, const DataOptions& shared = {}) const {
    return refusal_of([&] { ImageFolder(options, shared).prepare(); });
  }
  // Every pixel of the files of write_png(), [channels, height, width].
  static at::Tensor png_tensor(std::int64_t channels, std::int64_t height, std::int64_t width,
                               std::int64_t shift = 0) {
    at::Tensor image = at::empty({channels, height, width}, at::kByte);
    auto* value = image.mutable_data_ptr<std::uint8_t>();
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t y = 0; y < height; ++y)
        for (std::int64_t x = 0; x < width; ++x) *value++ = png_value(y, x, c, shift);
    return image;
  }

  Scratch scratch_;
  const std::filesystem::path root_ = scratch_ / "images";
};

}  // namespace kindling
