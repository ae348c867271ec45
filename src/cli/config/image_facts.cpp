#include "cli/config/image_facts.h"

#include <algorithm>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "data/masks/mask_pairs.h"
#include "data/masks/mask_values.h"
#include "data/sources/image_file_dataset.h"
#include "kindling/base/error.h"
#include "kindling/data/segmentation_folder.h"
#include "kindling/formats/image.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSomeFiles = 64;  // whose sizes are looked at

struct Names {
  const char *images, *others;
};
constexpr std::array<Names, 2> kMasks{{{"images", "masks"}, {"JPEGImages", "SegmentationClass"}}};
constexpr std::array<Names, 4> kBoxes{{{"images", "labels"},
                                       {"images", "annotations"},
                                       {"JPEGImages", "Annotations"},
                                       {"train2017", "annotations"}}};
constexpr std::array kValidation{"val", "valid", "validation", "test"};

bool has_folder(const fs::path& root, const char* name) {
  std::error_code error;
  return fs::is_directory(root / name, error);
}

bool has_folders(const fs::path& root) {
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error))
    if (std::error_code ignored; entry->is_directory(ignored)) return true;
  return false;
}

// Every n-th of the files in the directories of `root` that Kindling reads, so that there are at most
// kSomeFiles.
std::vector<fs::path> some_images(const fs::path& root) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error))
    if (std::error_code ignored; entry->is_regular_file(ignored)) files.push_back(entry->path());
  std::ranges::sort(files);
  std::vector<fs::path> some;
  for (std::size_t i = 0, count = std::min(files.size(), kSomeFiles); i < count; ++i)
    some.push_back(files[i * files.size() / count]);
  return some;
}

// Whole multiples of what networks halve several times.
std::int64_t usual_side(std::int64_t side) { return side >= 128 ? 128 : side >= 64 ? 64 : 32; }

void add_sizes(ImageFacts& facts, const fs::path& folder, std::int64_t largest, std::int64_t multiple) {
  std::set<ImageSize> sizes;
  std::vector<std::int64_t> sides;
  bool has_grey = false;
  for (const fs::path& file : some_images(folder)) try {
      const Image image = read_image(file);
      sizes.insert({image.height, image.width});
      sides.push_back(std::min(image.height, image.width));
      facts.channels = std::max(facts.channels, image.channels);
      has_grey |= image.channels == 1;
    } catch (const DataError&) {
    }
  if (sizes.empty()) return;
  facts.has_other_channels = has_grey && facts.channels > 1;
  const auto [height, width] = facts.size = *sizes.begin();
  facts.resizes = sizes.size() > 1 || std::max(height, width) > largest || height % multiple != 0 ||
                  width % multiple != 0;
  facts.sizes = sizes.size() == 1 ? "images of " + image_size_text(facts.size)
                                  : "images of different sizes, such as " + image_size_text(*sizes.begin()) +
                                        " and " + image_size_text(*sizes.rbegin());
  if (!facts.resizes) return;
  std::ranges::nth_element(sides, sides.begin() + static_cast<std::ptrdiff_t>(sides.size() / 2));
  facts.size.fill(usual_side(sides[sides.size() / 2]));
}

// Masks of two classes often have 0 and 255.
std::vector<std::int64_t> values_of_masks(const ImageFacts& facts) try {
  const MaskPairs pairs = find_mask_pairs(facts.root / facts.images, facts.root / facts.masks);
  const std::size_t count = mask_values_of(pairs, {.root = facts.root}).classes.size();
  std::vector<std::int64_t> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int64_t>(i);
  return values;
} catch (const DataError& error) {
  if (error.parts().remedy.find("[0, 255]") == std::string::npos) return {};
  return {0, 255};
}

ImageFacts facts_of_masks(const fs::path& root, const Names& names) {
  constexpr std::int64_t kLargest = 256, kMultiple = 16;  // of the unet with its defaults
  ImageFacts facts{.data_name = "segmentation_folder",
                   .root = root,
                   .layout = std::string(names.images) + " and " + names.others + " are directories in it",
                   .images = names.images,
                   .masks = names.others};
  facts.mask_values = values_of_masks(facts);
  facts.num_classes = facts.mask_values.size();
  add_sizes(facts, root / names.images, kLargest, kMultiple);
  return facts;
}

std::size_t num_folders(const fs::path& root) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator(root))
    if (std::error_code ignored;
        entry.is_directory(ignored) && !entry.path().filename().string().starts_with("."))
      ++count;
  return count;
}

ImageFacts facts_of_classes(const fs::path& root) {
  ImageFacts facts{.data_name = "image_folder", .root = root, .layout = "it has a directory per class"};
  if (has_folder(root, "train") && has_folders(root / "train")) {
    facts.root = root / "train";
    facts.layout = "train is a directory in it";
    const auto found = std::ranges::find_if(
        kValidation, [&](const char* name) { return has_folder(root, name) && has_folders(root / name); });
    if (found != kValidation.end()) {
      facts.val_root = root / *found;
      facts.layout = std::string("train and ") + *found + " are directories in it";
    }
  }
  constexpr std::int64_t kLargest = 128;
  facts.num_classes = num_folders(facts.root);
  add_sizes(facts, facts.root, kLargest, /*multiple=*/1);
  return facts;
}

}  // namespace

ImageFacts facts_of_images(const fs::path& root) {
  const auto has = [&](const Names& names) {
    return has_folder(root, names.images) && has_folder(root, names.others);
  };
  if (const auto found = std::ranges::find_if(kMasks, has); found != kMasks.end())
    return facts_of_masks(root, *found);
  if (const auto found = std::ranges::find_if(kBoxes, has); found != kBoxes.end())
    throw ConfigError(
        {.place = root.string(),
         .found = std::string("the directories ") + found->images + " and " + found->others +
                  ", as data sets with boxes have them",
         .wanted = "a directory per class, or images and masks",
         .remedy = "Kindling has no detection; if they are masks, rename the directory to masks"});
  return has_folders(root) ? facts_of_classes(root) : ImageFacts{};
}

}  // namespace kindling
