#include "kindling/data/segmentation_folder.h"

#include <numeric>
#include <set>
#include <utility>

#include "data/loading/sample_ranges.h"
#include "data/masks/mask_dataset.h"
#include "data/masks/mask_pairs.h"
#include "data/masks/mask_values.h"
#include "data/sources/image_scale.h"
#include "kindling/base/error.h"
#include "kindling/data/split.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

void check_segmentation_options(const SegmentationFolderOptions& options, const DataOptions& shared) {
  validate(options, "data");
  const auto refuse = [](const char* place, std::string found, const char* wanted, const char* remedy = "") {
    throw ConfigError({.place = place, .found = std::move(found), .wanted = wanted, .remedy = remedy});
  };
  if (options.root.empty())
    refuse("data.root", "it is not set", "the directory of images and masks", "for example root = \"cells\"");
  if (options.channels == 2) refuse("data.channels", "it is 2", "1 (grey) or 3 (color)");
  if (options.classes.size() == 1) refuse("data.classes", "there is one class", "at least two");
  if (options.classes.size() > 256) refuse("data.classes", "there are more than 256", "at most 256");
  const std::set<std::int64_t> values(options.mask_values.begin(), options.mask_values.end());
  if (values.size() != options.mask_values.size())
    refuse("data.mask_values", "a value is listed twice", "one value per class");
  if (values.size() == 1) refuse("data.mask_values", "there is one value", "at least two");
  if (!options.classes.empty() && !values.empty() && options.classes.size() != values.size())
    refuse("data.mask_values",
           "there are " + std::to_string(values.size()) + " values, and " +
               std::to_string(options.classes.size()) + " classes",
           "one value per class");
  if (options.ignore_index && values.contains(*options.ignore_index))
    refuse("data.ignore_index", "it is also one of data.mask_values", "a value that is not a class");
  if (shared.sampler == "balanced")
    refuse("data.sampler", "it is balanced, and a sample has a class per pixel", "shuffled or sequential",
           "class_weights = \"balanced\" in [model] weights the classes in the loss");
  const bool is_split = options.val_fraction || options.folds;
  if (is_split && (shared.train || shared.val))
    refuse("data", "val_fraction or folds, and a range of pairs in train or val",
           "one way to split the pairs");
  if (!options.train_list.empty() && (is_split || shared.train || shared.val))
    refuse("data.train_list", "there is also val_fraction, folds, or a range of pairs in train or val",
           "one way to split the pairs");
  if (!options.val_list.empty() && options.train_list.empty())
    refuse("data.val_list", "train_list is not set", "the names of the pairs for training, too");
  if (options.fold != 0 && !options.folds)
    refuse("data.fold", "folds is not set", "folds = N, with fold < N");
}

SplitIndices split_pairs(const MaskPairs& pairs, const SegmentationFolderOptions& options,
                         const DataOptions& shared) {
  const auto count = static_cast<std::int64_t>(pairs.images.size());
  if (!options.val_fraction && !options.folds) return samples_in_ranges(count, shared);
  return split_indices(count, {.val_fraction = options.val_fraction,
                               .folds = options.folds,
                               .fold = options.fold,
                               .seed = options.seed,
                               .place = "data"});
}

// The pairs for training come first.
MaskPairs listed_pairs(const SegmentationFolderOptions& options, SplitIndices& split) {
  std::vector<PairName> names = read_pair_names(options.root / options.train_list), val;
  if (!options.val_list.empty()) val = read_pair_names(options.root / options.val_list);
  split.train.resize(names.size());
  split.val.resize(val.size());
  std::iota(split.train.begin(), split.train.end(), 0);
  std::iota(split.val.begin(), split.val.end(), static_cast<std::int64_t>(names.size()));
  names.insert(names.end(), val.begin(), val.end());
  return find_listed_pairs(options.root / options.images, options.root / options.masks, names);
}

SampleIds ids_of(const MaskPairs& pairs, const std::vector<std::int64_t>& samples) {
  SampleIds ids{.name = "file"};
  for (const std::int64_t sample : samples)
    ids.values.push_back(pairs.images[static_cast<std::size_t>(sample)]);
  return ids;
}

std::vector<std::int64_t> all_of(const MaskPairs& pairs) {
  std::vector<std::int64_t> samples(pairs.images.size());
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::int64_t>(i);
  return samples;
}

}  // namespace

struct SegmentationFolder::Impl {
  std::shared_ptr<DataLoader> loader_of(std::shared_ptr<const MaskPairs> of,
                                        std::vector<std::int64_t> samples,
                                        DataLoaderOptions loader_options) const {
    return std::make_shared<DataLoader>(
        std::make_shared<MaskDataset>(std::move(of), values, std::move(samples), format),
        std::move(loader_options));
  }

  const SegmentationFolderOptions options;
  const ImageScale scale{.normalize = options.normalize};
  std::shared_ptr<const MaskPairs> pairs{}, predicted{};
  std::shared_ptr<const MaskValues> values{};
  ImageFormat format{};
  SplitIndices split{};
  fs::path predict_path{};
  std::shared_ptr<DataLoader> train_loader{}, val_loader{}, predict_loader{};
};

SegmentationFolder::SegmentationFolder(SegmentationFolderOptions options, DataOptions data_options)
    : DataModule(std::move(data_options)) {
  check_segmentation_options(options, this->options());
  impl_ = std::make_unique<Impl>(Impl{.options = std::move(options)});
  check_image_scale(impl_->scale);
}

SegmentationFolder::~SegmentationFolder() = default;

void SegmentationFolder::prepare_data() {
  const SegmentationFolderOptions& options = impl_->options;
  if (!impl_->predict_path.empty()) {
    impl_->predicted = std::make_shared<const MaskPairs>(find_images(impl_->predict_path));
    impl_->format = format_like(impl_->predicted->image(0), options.size, options.channels);
    impl_->format.has_full_size = true;                      // as where the pairs exist
    if (!fs::exists(options.root / options.images)) return;  // only predicts other images
  }
  SplitIndices split;
  const bool has_lists = !options.train_list.empty();
  MaskPairs pairs = has_lists ? listed_pairs(options, split)
                              : find_mask_pairs(options.root / options.images, options.root / options.masks);
  impl_->values = std::make_shared<const MaskValues>(mask_values_of(pairs, options));
  impl_->split = has_lists ? std::move(split) : split_pairs(pairs, options, this->options());
  impl_->format = format_like(pairs.image(0), options.size, options.channels);
  impl_->format.has_full_size = true;  // to be compared with that of the mask
  impl_->pairs = std::make_shared<const MaskPairs>(std::move(pairs));
}

std::shared_ptr<DataLoader> SegmentationFolder::train_dataloader() {
  prepare();
  if (!impl_->train_loader && impl_->pairs)
    impl_->train_loader = impl_->loader_of(impl_->pairs, impl_->split.train, loader_options(/*train=*/true));
  return impl_->train_loader;
}

std::shared_ptr<DataLoader> SegmentationFolder::val_dataloader() {
  prepare();
  if (!impl_->val_loader && !impl_->split.val.empty())
    impl_->val_loader = impl_->loader_of(impl_->pairs, impl_->split.val, loader_options(/*train=*/false));
  return impl_->val_loader;
}

std::shared_ptr<DataLoader> SegmentationFolder::predict_dataloader() {
  if (impl_->predict_path.empty()) return val_dataloader();
  prepare();
  if (!impl_->predict_loader)
    impl_->predict_loader =
        impl_->loader_of(impl_->predicted, all_of(*impl_->predicted), loader_options(/*train=*/false));
  return impl_->predict_loader;
}

Batch SegmentationFolder::on_after_batch_transfer(Batch batch) {
  return scaled_images(std::move(batch), impl_->scale);
}

void SegmentationFolder::predict_from(const fs::path& path) { impl_->predict_path = path; }

std::vector<std::string> SegmentationFolder::class_names() {
  prepare();
  return impl_->values ? impl_->values->classes : impl_->options.classes;
}

std::vector<std::string> SegmentationFolder::skipped_samples() {
  prepare();
  return impl_->predicted ? impl_->predicted->unpaired : impl_->pairs->unpaired;
}

SampleIds SegmentationFolder::train_ids() {
  prepare();
  return impl_->pairs ? ids_of(*impl_->pairs, impl_->split.train) : SampleIds();
}

SampleIds SegmentationFolder::val_ids() {
  prepare();
  return impl_->pairs ? ids_of(*impl_->pairs, impl_->split.val) : SampleIds();
}

SampleIds SegmentationFolder::predict_ids() {
  if (impl_->predict_path.empty()) return val_ids();
  prepare();
  return ids_of(*impl_->predicted, all_of(*impl_->predicted));
}

}  // namespace kindling
