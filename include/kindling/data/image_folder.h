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

struct ImageFolderOptions {
  std::optional<std::filesystem::path> root{};  // directory with a directory of images per class
  std::optional<std::filesystem::path> list{};  // or table with a row per image
  // Columns of the list.
  std::string image = "file", label = "label";
  std::string label_separator{};      // of several classes in a cell of `label`; empty: one class
  std::vector<std::string> target{};  // columns of numbers to predict, instead of `label`
  // Directory of the validation images, with class directories of the same names. Absent: a part of `root`.
  std::optional<std::filesystem::path> val_root{};
  std::string weights{};                              // column of the list by which files are drawn
  std::optional<std::array<std::int64_t, 2>> size{};  // height and width; absent: those of the first file
  std::optional<std::int64_t> channels{};             // 1 or 3; absent: those of the first file
  std::optional<std::array<double, 2>> normalize{};   // mean, standard deviation, after division by 255
  // The split, see split.h. Without val_fraction and folds, DataOptions::train and val are ranges of files.
  std::optional<double> val_fraction{};
  std::optional<std::int64_t> folds{};
  std::int64_t fold = 0;
  bool stratify = false;
  std::int64_t seed = 0;  // of the split
  std::string on_broken = "stop";

  static constexpr auto fields = kindling::fields(
      kindling::field("root", &ImageFolderOptions::root,
                      {.doc = "directory with one directory of images per class", .example = "\"images\""}),
      kindling::field("list", &ImageFolderOptions::list,
                      {.doc = "table with a row per image and the columns file and label, instead of class "
                              "directories; files are relative to root, or else to the list",
                       .example = "\"files.csv\""}),
      kindling::field("image", &ImageFolderOptions::image,
                      {.doc = "column of the list with the image files", .example = "\"path\""}),
      kindling::field("label", &ImageFolderOptions::label,
                      {.doc = "column of the list with the classes", .example = "\"species\""}),
      kindling::field("label_separator", &ImageFolderOptions::label_separator,
                      {.doc = "separates several labels in a cell of the list, such as cat|dog; needs "
                              "model.multi_label; empty: a cell is one label",
                       .example = "\"|\""}),
      kindling::field("target", &ImageFolderOptions::target,
                      {.doc = "column of the list with numbers to predict, or a list of them, instead of "
                              "label",
                       .example = "\"age\""}),
      kindling::field("val_root", &ImageFolderOptions::val_root,
                      {.doc = "directory of the images for validation, with class directories of the same "
                              "names; absent: a part of those in root",
                       .example = "\"images/val\""}),
      kindling::field("weights", &ImageFolderOptions::weights,
                      {.doc = "column of numbers in the list; each epoch draws training files with "
                              "replacement, in proportion to it",
                       .example = "\"weight\""}),
      kindling::field("size", &ImageFolderOptions::size,
                      {.doc = "height and width to which all images are resized; absent: all files have the "
                              "same size",
                       .min = 1,
                       .example = "[32, 32]"}),
      kindling::field(
          "channels", &ImageFolderOptions::channels,
          {.doc = "1: grey, 3: color; absent: those of the first image", .min = 1, .max = 3, .example = "3"}),
      kindling::field("normalize", &ImageFolderOptions::normalize,
                      {.doc = "[mean, std], applied after division by 255", .example = "[0.5, 0.25]"}),
      kindling::field("val_fraction", &ImageFolderOptions::val_fraction,
                      {.doc = "fraction of the files for validation",
                       .min = 0,
                       .max = 1,
                       .min_excluded = true,
                       .max_excluded = true,
                       .example = "0.2"}),
      kindling::field("folds", &ImageFolderOptions::folds,
                      {.doc = "number of folds, one of which is for validation", .min = 2, .example = "5"}),
      kindling::field("fold", &ImageFolderOptions::fold,
                      {.doc = "the fold for validation, counted from 0", .min = 0}),
      kindling::field("stratify", &ImageFolderOptions::stratify,
                      {.doc = "split each class in the same proportion"}),
      kindling::field("seed", &ImageFolderOptions::seed, {.doc = "seed of the split", .min = 0}),
      kindling::field("on_broken", &ImageFolderOptions::on_broken,
                      {.doc = "files that cannot be read; skip: all files are decoded once before the run, "
                              "and broken ones are dropped with a warning",
                       .choices = "stop|skip"}));
};

// Labelled image files (image.h), decoded when a batch needs them, on the loader's workers if there are some.
// A batch is {uint8 [batch, channels, height, width], int64 [batch]} and becomes float / 255 on the device.
// With several labels per image (`label_separator`), labels are uint8 [batch, classes], 1 for each class of
// the image; with `target`, float32 [batch, targets].
//
// The classes are the names of the directories in `root` (hidden ones are skipped), sorted bytewise, with
// their files sorted bytewise, and then those of the directories in them; or the values of the column
// `label` in the list, numbers in ascending order. Images in `val_root` have the labels that their class has
// in `root`, also if `val_root` lacks other classes. A file of another size is resized on the host, as by
// PIL's resize(size, BILINEAR): first the rows, then the columns. PIL begins with the columns for some sizes,
// and then has values that differ by 1. JPEG files at least four times as large in both directions are
// decoded at a reduced size first.
//
//   ImageFolder data({.root = "images", .size = {{32, 32}}, .val_fraction = 0.2, .stratify = true});
//
// A batch with a broken file throws DataError, which names the file. "skip" decodes every file in
// prepare_data(), on as many threads as there are cores: that costs the time of one epoch without training,
// in every process.
class KINDLING_API ImageFolder : public DataModule {
 public:
  // Throws ConfigError.
  explicit ImageFolder(ImageFolderOptions options, DataOptions data_options = {});
  ~ImageFolder() override;

  // Finds the files, splits them, and reads the first one unless size and channels are set. Throws DataError
  // with the directory, file or row of the list.
  void prepare_data() override;
  std::shared_ptr<DataLoader> train_dataloader() override;
  std::shared_ptr<DataLoader> val_dataloader() override;
  using DataModule::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override;

  std::vector<std::string> class_names() override;
  std::vector<std::string> skipped_samples() override;
  // Return the paths of the validation files: relative to `root`, or as in the list.
  SampleIds train_ids() override;
  SampleIds val_ids() override;
  SampleIds predict_ids() override { return val_ids(); }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
