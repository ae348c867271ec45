#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/data_module.h"

namespace kindling {

struct SegmentationFolderOptions {
  std::filesystem::path root{};                    // directory of the two others
  std::string images = "images", masks = "masks";  // directories, relative to root
  // Files with the names of the pairs for training and validation, relative to root; empty: all pairs, split
  // by what follows.
  std::string train_list{}, val_list{};
  std::vector<std::string> classes{};       // names of the classes 0, 1, …; empty: counted in the masks
  std::vector<std::int64_t> mask_values{};  // of the classes 0, 1, … in the files; empty: the class numbers
  // Value of pixels that do not count; -1: none; absent: 255, unless that is a class.
  std::optional<std::int64_t> ignore_index{};
  std::optional<std::array<std::int64_t, 2>> size{};  // height and width; absent: those of the first file
  std::optional<std::int64_t> channels{};             // 1 or 3; absent: those of the first file
  std::optional<std::array<double, 2>> normalize{};   // mean, standard deviation, after division by 255
  // The split, see split.h. Without both and without lists, DataOptions::train and val are ranges of pairs.
  std::optional<double> val_fraction{};
  std::optional<std::int64_t> folds{};
  std::int64_t fold = 0;
  std::int64_t seed = 0;  // of the split

  static constexpr auto fields = kindling::fields(
      kindling::field("root", &SegmentationFolderOptions::root,
                      {.doc = "directory with the directories images and masks", .example = "\"cells\""}),
      kindling::field("images", &SegmentationFolderOptions::images,
                      {.doc = "directory of the images, relative to root"}),
      kindling::field("masks", &SegmentationFolderOptions::masks,
                      {.doc = "directory of the masks, relative to root: PNG files with the name of their "
                              "image, or with _mask after it"}),
      kindling::field("train_list", &SegmentationFolderOptions::train_list,
                      {.doc = "file with the names of the pairs for training, one a line and without an "
                              "ending, relative to root; empty: all pairs",
                       .example = "\"ImageSets/Segmentation/train.txt\""}),
      kindling::field("val_list", &SegmentationFolderOptions::val_list,
                      {.doc = "file with the names of the pairs for validation, like train_list",
                       .example = "\"ImageSets/Segmentation/val.txt\""}),
      kindling::field("classes", &SegmentationFolderOptions::classes,
                      {.doc = "names of the classes 0, 1, …; empty: all masks are read once to count them",
                       .example = "[\"background\", \"cell\"]"}),
      kindling::field("mask_values", &SegmentationFolderOptions::mask_values,
                      {.doc = "values of the classes 0, 1, … in the masks; empty: 0, 1, …",
                       .min = 0,
                       .max = 255,
                       .example = "[0, 255]"}),
      kindling::field("ignore_index", &SegmentationFolderOptions::ignore_index,
                      {.doc = "value of pixels that do not count; -1: none; absent: 255, unless that is a "
                              "class",
                       .min = -1,
                       .max = 255,
                       .example = "255"}),
      kindling::field("size", &SegmentationFolderOptions::size,
                      {.doc = "height and width to which all pairs are resized; absent: all files have the "
                              "same size",
                       .min = 1,
                       .example = "[128, 128]"}),
      kindling::field(
          "channels", &SegmentationFolderOptions::channels,
          {.doc = "1: grey, 3: color; absent: those of the first image", .min = 1, .max = 3, .example = "3"}),
      kindling::field("normalize", &SegmentationFolderOptions::normalize,
                      {.doc = "[mean, std], applied after division by 255", .example = "[0.5, 0.25]"}),
      kindling::field("val_fraction", &SegmentationFolderOptions::val_fraction,
                      {.doc = "fraction of the pairs for validation",
                       .min = 0,
                       .max = 1,
                       .min_excluded = true,
                       .max_excluded = true,
                       .example = "0.2"}),
      kindling::field("folds", &SegmentationFolderOptions::folds,
                      {.doc = "number of folds, one of which is for validation", .min = 2, .example = "5"}),
      kindling::field("fold", &SegmentationFolderOptions::fold,
                      {.doc = "the fold for validation, counted from 0", .min = 0}),
      kindling::field("seed", &SegmentationFolderOptions::seed, {.doc = "seed of the split", .min = 0}));
};

// Images and masks of their pixels' classes (image.h), decoded when a batch needs them, on the loader's
// workers if there are some. A batch is {uint8 [batch, channels, height, width], int16 [batch, height,
// width]} and becomes float / 255 and int64 on the device. Pixels with `ignore_index` are -100 in both, which
// losses and metrics ignore by default, so that the model needs no ignore_index.
//
// A mask is a PNG file (read_mask()) with the name of its image and another ending, or with _mask after the
// name, such as masks/a/1.png or masks/a/1_mask.png for images/a/1.jpg. Files without their counterpart are
// skipped, counted and named by a warning. With lists, only the listed pairs are used, and a listed pair that
// is not complete throws DataError. Both files of a pair have the same size. With `size`, images are
// resized as by ImageFolder, and masks to the nearest pixel.
//
//   SegmentationFolder data({.root = "cells", .size = {{128, 128}}, .val_fraction = 0.2});
//
// A batch with a broken file, or with a value that is neither a class nor ignored, throws DataError, which
// names the file and the pixel.
class KINDLING_API SegmentationFolder : public DataModule {
 public:
  // Throws ConfigError.
  explicit SegmentationFolder(SegmentationFolderOptions options, DataOptions data_options = {});
  ~SegmentationFolder() override;

  // Finds the pairs and splits them, and reads all masks, or some of them if `classes` is set. Throws
  // DataError.
  void prepare_data() override;
  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  std::shared_ptr<DataLoader> predict_dataloader() override;
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override;
  // Predicts the images in this directory, which need no masks, or this image.
  void predict_from(const std::filesystem::path& path) override;

  // Returns the names of `classes`, or the numbers of those that were counted.
  std::vector<std::string> class_names() override;
  // Returns a text for each file without its counterpart.
  std::vector<std::string> skipped_samples() override;
  // Return the paths of the images, relative to their directory.
  SampleIds train_ids() override;
  SampleIds val_ids() override;
  SampleIds predict_ids() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
