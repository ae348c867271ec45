#include "kindling/data/image_folder.h"

#include <ATen/ops/tensor.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <utility>

#include "data/loading/balanced_sampler.h"
#include "data/loading/sample_ranges.h"
#include "data/sources/data_checks.h"
#include "data/sources/image_file_dataset.h"
#include "data/sources/image_files.h"
#include "data/sources/image_scale.h"
#include "data/sources/split_findings.h"
#include "data/sources/table_labels.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/data/sampler.h"
#include "kindling/data/split.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

// The columns of the list, and what several labels or numbers do not have: one class per file.
template <class Refuse>
void check_columns(const ImageFolderOptions& options, const DataOptions& shared, const Refuse& refuse) {
  const ImageFolderOptions usual;
  const bool has_several = !options.label_separator.empty(), has_targets = !options.target.empty();
  const char* const key = has_several                    ? "data.label_separator"
                          : has_targets                  ? "data.target"
                          : options.image != usual.image ? "data.image"
                          : options.label != usual.label ? "data.label"
                                                         : nullptr;
  if (key != nullptr && !options.list) refuse(key, "no list is set", "a table of the images, data.list");
  if (has_several && has_targets)
    refuse("data", "both label_separator and target are set", "labels, or numbers to predict");
  if (!has_several && !has_targets) return;
  if (options.val_root)
    refuse("data.val_root", "it is set, and the list has no single class per file",
           "val_fraction, folds, or ranges in train and val");
  if (shared.sampler == "balanced")
    refuse("data.sampler", "it is \"balanced\", and the list has no single class per file",
           "data.weights, a column by which files are drawn");
  if (has_targets && options.stratify)
    refuse("data.stratify", "data.target is set", "a column of classes, data.label");
}

void check_folder_options(const ImageFolderOptions& options, const DataOptions& shared) {
  validate(options, "data");
  const auto refuse = [](const char* place, const char* found, const char* wanted, const char* remedy = "") {
    throw ConfigError({.place = place, .found = found, .wanted = wanted, .remedy = remedy});
  };
  if (!options.root && !options.list)
    refuse("data", "neither root nor list is set", "a directory of images, or a list of files",
           "for example root = \"images\"");
  check_columns(options, shared, refuse);
  if (!options.weights.empty() && !options.list)
    refuse("data.weights", "no list is set", "a column of data.list");
  if (!options.weights.empty() && shared.sampler)
    refuse("data.weights", "data.sampler is set, too", "one of them", "weights draw the files by themselves");
  if (options.channels == 2) refuse("data.channels", "it is 2", "1 (grey) or 3 (color)");
  const bool is_split = options.val_fraction || options.folds;
  if (is_split && (shared.train || shared.val))
    refuse("data", "val_fraction or folds, and a range of files in train or val",
           "one way to split the files");
  if (options.val_root && (is_split || shared.val))
    refuse("data.val_root", "it is set, and the files are split, too", "one way to get validation images");
  if (options.fold != 0 && !options.folds)
    refuse("data.fold", "folds is not set", "folds = N, with fold < N");
  if (options.stratify && !is_split)
    refuse("data.stratify", "the files are not split", "val_fraction or folds",
           "for example val_fraction = 0.2");
}

ImageFiles find_files(const ImageFolderOptions& options) {
  if (!options.list) return files_in_class_folders(*options.root);
  return files_in_list({.file = *options.list,
                        .folder = options.root.value_or(options.list->parent_path()),
                        .image = options.image,
                        .label = options.label,
                        .label_separator = options.label_separator,
                        .target = options.target,
                        .weights = options.weights,
                        .must_exist = options.on_broken == "stop"});
}

// The images of `val_root` with the labels of the training classes.
ImageFiles find_validation_files(const fs::path& val_root, const ImageFiles& training) {
  ImageFiles files = files_in_class_folders(val_root, "data.val_root");
  std::vector<std::int64_t> labels;
  for (const std::string& name : files.classes) {
    const auto found = std::ranges::find(training.classes, name);
    if (found == training.classes.end())
      throw DataError(
          {.place = (val_root / name).string(),
           .found = "no training images have this class",
           .wanted = "one of " + list_names(training.classes),
           .remedy = "add its images to " + training.folder.string() + ", or remove the directory"});
    labels.push_back(found - training.classes.begin());
  }
  for (std::int64_t& label : files.labels) label = labels[static_cast<std::size_t>(label)];
  files.classes = training.classes;
  return files;
}

SplitIndices split_files(const ImageFiles& files, const ImageFolderOptions& options,
                         const DataOptions& shared) {
  const auto count = static_cast<std::int64_t>(files.names.size());
  if (!options.val_fraction && !options.folds) return samples_in_ranges(count, shared);
  SplitOptions split{.val_fraction = options.val_fraction,
                     .folds = options.folds,
                     .fold = options.fold,
                     .seed = options.seed,
                     .place = "data"};
  const bool has_several = !options.label_separator.empty();
  if (options.stratify) split.classes = has_several ? codes_of_sets(files.targets, split) : files.labels;
  SplitIndices indices = split_indices(count, split);
  if (has_several) warn_of_unshared_classes(files.targets, indices, files.classes, "data");
  if (files.targets.defined()) return indices;
  warn_of_unvalidated_classes(files.labels, indices, files.classes, options.stratify, "data");
  return indices;
}

}  // namespace

struct ImageFolder::Impl {
  std::shared_ptr<DataLoader> loader_of(const std::shared_ptr<const ImageFiles>& of,
                                        const std::vector<std::int64_t>& samples,
                                        DataLoaderOptions loader_options) const {
    return std::make_shared<DataLoader>(std::make_shared<ImageFileDataset>(of, samples, format),
                                        std::move(loader_options));
  }

  // Removes broken files if they are to be skipped.
  std::shared_ptr<const ImageFiles> kept(ImageFiles found) {
    skipped.insert(skipped.end(), found.unread.begin(), found.unread.end());
    if (options.on_broken == "skip") std::ranges::move(drop_broken_files(found), std::back_inserter(skipped));
    return std::make_shared<const ImageFiles>(std::move(found));
  }

  std::shared_ptr<const Sampler> sampler_of_classes(std::int64_t seed) const {
    std::vector<std::int64_t> labels;
    for (const std::int64_t sample : split.train)
      labels.push_back(files->labels[static_cast<std::size_t>(sample)]);
    return balanced_sampler(at::tensor(labels, at::kLong), seed);
  }

  // Draws with replacement, in proportion to the weights of the list.
  std::shared_ptr<const Sampler> weighted_sampler(std::int64_t seed) const {
    std::vector<double> weights;
    for (const std::int64_t sample : split.train)
      weights.push_back(files->weights[static_cast<std::size_t>(sample)]);
    return weighted_training(at::tensor(weights, at::kDouble), seed,
                             options.list->string() + ", column '" + options.weights + "'", "files");
  }

  static SampleIds ids_of(const ImageFiles& of, const std::vector<std::int64_t>& samples) {
    SampleIds ids{.name = "file"};
    for (const std::int64_t sample : samples)
      ids.values.push_back(of.names[static_cast<std::size_t>(sample)]);
    return ids;
  }

  const ImageFolderOptions options;
  const ImageScale scale{.normalize = options.normalize};
  std::shared_ptr<const ImageFiles> files{}, val_files{};  // the same without val_root
  ImageFormat format{};
  SplitIndices split{};
  std::vector<std::string> skipped{};  // an error per file
  std::shared_ptr<DataLoader> train_loader{}, val_loader{};
};

ImageFolder::ImageFolder(ImageFolderOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_folder_options(options, this->options());
  impl_ = std::make_unique<Impl>(Impl{.options = std::move(options)});
  check_image_scale(impl_->scale);
}

ImageFolder::~ImageFolder() = default;

void ImageFolder::prepare_data() {
  const ImageFolderOptions& own = impl_->options;
  impl_->skipped.clear();
  impl_->files = impl_->val_files = impl_->kept(find_files(own));
  const ImageFiles& files = *impl_->files;
  impl_->split = split_files(files, own, options());
  impl_->format = format_like(files.path(0), own.size, own.channels);
  if (!own.val_root) return;
  impl_->val_files = impl_->kept(find_validation_files(*own.val_root, files));
  impl_->split.val.resize(impl_->val_files->names.size());
  std::iota(impl_->split.val.begin(), impl_->split.val.end(), 0);
}

std::shared_ptr<DataLoader> ImageFolder::train_dataloader() {
  prepare();
  if (impl_->train_loader) return impl_->train_loader;
  DataLoaderOptions loader = loader_options(/*train=*/true);
  if (!impl_->options.weights.empty()) loader.sampler = impl_->weighted_sampler(options().seed);
  if (options().sampler == "balanced") loader.sampler = impl_->sampler_of_classes(options().seed);
  return impl_->train_loader = impl_->loader_of(impl_->files, impl_->split.train, std::move(loader));
}

std::shared_ptr<DataLoader> ImageFolder::val_dataloader() {
  prepare();
  if (!impl_->val_loader && !impl_->split.val.empty())
    impl_->val_loader = impl_->loader_of(impl_->val_files, impl_->split.val, loader_options(/*train=*/false));
  return impl_->val_loader;
}

Batch ImageFolder::on_after_batch_transfer(Batch batch) {
  return scaled_images(std::move(batch), impl_->scale);
}

std::vector<std::string> ImageFolder::class_names() {
  prepare();
  return impl_->files->classes;
}

std::vector<std::string> ImageFolder::skipped_samples() {
  prepare();
  return impl_->skipped;
}

SampleIds ImageFolder::train_ids() {
  prepare();
  return Impl::ids_of(*impl_->files, impl_->split.train);
}

SampleIds ImageFolder::val_ids() {
  prepare();
  return Impl::ids_of(*impl_->val_files, impl_->split.val);
}

}  // namespace kindling
