#include "cli/config/image_facts.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/joined.h"
#include "cli/config/command_line.h"
#include "data/masks/mask_pairs.h"
#include "data/masks/mask_values.h"
#include "data/sources/image_file_dataset.h"
#include "data/sources/image_files.h"
#include "kindling/base/error.h"
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

// Words of directories that are no classes. The others say nothing alone: training_set, train_images.
constexpr std::array<std::string_view, 7> kParts{"train",      "training", "val",    "valid",
                                                 "validation", "test",     "testing"};
constexpr std::array<std::string_view, 4> kKinds{"images", "masks", "labels", "annotations"};
constexpr std::array<std::string_view, 5> kOthers{"set", "data", "image", "mask", "label"};

constexpr const char* kLayouts =
    "a directory per class, train and val with a directory per class each, or images and masks";

bool has_folder(const fs::path& root, const char* name) {
  std::error_code error;
  return fs::is_directory(root / name, error);
}

// The names of the directories in `root`, sorted, except for hidden ones and those that hold runs.
std::vector<std::string> folders_in(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (std::error_code ignored;
        !name.starts_with(".") && entry->is_directory(ignored) && !holds_runs(entry->path()))
      names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}
bool has_folders(const fs::path& root) { return !folders_in(root).empty(); }

bool is_in(std::span<const std::string_view> words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}
bool is_part(const std::string& name) { return is_in(kParts, lower_case(name)); }

// True for names that data sets give to what is no class: test, train2017, training_set, train_masks.
bool is_no_class(const std::string& name) {
  std::vector<std::string> words{""};
  for (const char c : lower_case(name))
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  if (words.back().empty()) words.pop_back();
  const auto decides = [](const std::string& word) { return is_in(kParts, word) || is_in(kKinds, word); };
  return std::ranges::any_of(words, decides) && std::ranges::all_of(words, [&](const std::string& word) {
           return decides(word) || is_in(kOthers, word);
         });
}

// Every n-th of the files in the directories of `root` that Kindling reads, so that there are at most
// kSomeFiles.
std::vector<fs::path> some_images(const fs::path& root) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(root, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code ignored;
    if (entry->is_regular_file(ignored)) files.push_back(entry->path());
    if (entry.depth() == 0 && entry->is_directory(ignored) && holds_runs(entry->path()))
      entry.disable_recursion_pending();
  }
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

std::vector<std::int64_t> values_of_masks(const ImageFacts& facts) try {
  return values_in_masks(find_mask_pairs(facts.root / facts.images, facts.root / facts.masks));
} catch (const DataError&) {
  return {};
}

// "0, 128, 255"
std::string list_of_values(const std::vector<std::int64_t>& values) {
  constexpr std::size_t kMost = 20;
  return joined(std::span(values).first(std::min(kMost, values.size())), ", ",
                [](std::int64_t value) { return std::to_string(value); }) +
         (values.size() > kMost ? ", …" : "");
}

// Throws ConfigError for images/train and masks/train.
void refuse_parts_in(const fs::path& root, const Names& names) {
  for (const char* const folder : {names.images, names.others}) {
    std::vector<std::string> parts = folders_in(root / folder);
    std::erase_if(parts, [](const std::string& name) { return !is_part(name); });
    if (parts.empty()) continue;
    const std::string first = "/" + parts.front() + "\"";
    throw ConfigError({.place = (root / folder).string(),
                       .found = "the directories " + joined(parts, ", ") +
                                ", a split that would be lost: segmentation_folder has no directory for "
                                "validation",
                       .wanted = "one directory of images and one of masks, without a split",
                       .remedy = std::string("in a config, data.images = \"") + names.images + first +
                                 " and data.masks = \"" + names.others + first +
                                 " take one of them, of which data.val_fraction is for validation"});
  }
}

// Throws ConfigError for train/images and train/masks.
[[noreturn]] void refuse_masks_in_train(const fs::path& train, const Names& names) {
  throw ConfigError({.place = train.string(),
                     .found = std::string("the directories ") + names.images + " and " + names.others +
                              "; a segmentation with a directory for validation is not supported",
                     .wanted = std::string(names.images) + " and " + names.others +
                               " of all pairs, a part of which is for validation",
                     .remedy = "to train on these pairs alone: kindling fit " + shell_word(train.string())});
}

ImageFacts facts_of_masks(const fs::path& root, const Names& names) {
  constexpr std::int64_t kLargest = 256, kMultiple = 16;  // of the unet with its defaults
  ImageFacts facts{.data_name = "segmentation_folder",
                   .root = root,
                   .layout = std::string(names.images) + " and " + names.others + " are directories in it",
                   .images = names.images,
                   .masks = names.others};
  refuse_parts_in(root, names);
  facts.mask_values = values_of_masks(facts);
  add_sizes(facts, root / names.images, kLargest, kMultiple);
  return facts;
}

// Throws ConfigError if the directories in `root` are not classes.
void require_classes(const fs::path& root, const std::vector<std::string>& names) {
  if (names.size() == 1)
    throw ConfigError(
        {.place = root.string(),
         .found = "one directory, " + names.front(),
         .wanted = std::string("at least two classes: ") + kLayouts,
         .remedy = has_folders(root / names.front())
                       ? "if the data are in it: kindling fit " + shell_word((root / names.front()).string())
                       : "the images of each class need a directory of their own"});
  std::vector<std::string> wrong = names;
  std::erase_if(wrong, [](const std::string& name) { return !is_no_class(name); });
  if (wrong.empty()) return;
  if (wrong == std::vector<std::string>{"train"} && names.size() > 2) return;  // next to bus and car
  throw ConfigError(
      {.place = root.string(),
       .found = "the directories " + joined(names, ", ") + ", of which " + joined(wrong, ", ") +
                (wrong.size() == 1 ? " is not a class by its name" : " are not classes by their names"),
       .wanted = kLayouts,
       .remedy = "if they are classes, or a table has the labels (data.list), write a config with "
                 "data.name = \"image_folder\""});
}

ImageFacts facts_of_classes(const fs::path& root) {
  ImageFacts facts{.data_name = "image_folder", .root = root, .layout = "it has a directory per class"};
  facts.root = training_root(root);
  if (facts.root != root) {
    facts.layout = "train is a directory in it";
    const auto found = std::ranges::find_if(
        kValidation, [&](const char* name) { return has_folder(root, name) && has_folders(root / name); });
    if (found != kValidation.end()) {
      facts.val_root = root / *found;
      facts.layout = std::string("train and ") + *found + " are directories in it";
    }
  }
  constexpr std::int64_t kLargest = 128;
  const std::vector<std::string> classes = folders_in(facts.root);
  require_classes(facts.root, classes);
  facts.num_classes = classes.size();
  add_sizes(facts, facts.root, kLargest, /*multiple=*/1);
  return facts;
}

// Those of the names that are both directories in `root`; nullptr: none.
const Names* layout_in(const fs::path& root, std::span<const Names> names) {
  const auto found = std::ranges::find_if(
      names, [&](const Names& one) { return has_folder(root, one.images) && has_folder(root, one.others); });
  return found == names.end() ? nullptr : &*found;
}

void refuse_boxes(const fs::path& root) {
  const Names* const found = layout_in(root, kBoxes);
  if (found == nullptr) return;
  throw ConfigError(
      {.place = root.string(),
       .found = std::string("the directories ") + found->images + " and " + found->others +
                ", as data sets with boxes have them",
       .wanted = "a directory per class, or images and masks",
       .remedy = "Kindling has no detection; if they are masks, rename the directory to masks"});
}

}  // namespace

fs::path training_root(const fs::path& root) {
  const bool has_train = layout_in(root, kMasks) == nullptr && has_folders(root / "train");
  return has_train ? root / "train" : root;
}

ImageFacts facts_of_images(const fs::path& root) {
  if (const Names* const masks = layout_in(root, kMasks)) return facts_of_masks(root, *masks);
  if (const Names* const masks = layout_in(root / "train", kMasks))
    refuse_masks_in_train(root / "train", *masks);
  refuse_boxes(root);
  refuse_boxes(root / "train");
  return has_folders(root) ? facts_of_classes(root) : ImageFacts{};
}

std::vector<std::int64_t> class_values(const ImageFacts& facts, std::optional<std::int64_t> ignore_index) {
  constexpr std::int64_t kUsual = 255, kNone = -1;
  std::vector<std::int64_t> values = facts.mask_values;
  std::erase(values, ignore_index.value_or(kNone));
  if (values == std::vector<std::int64_t>{0, kUsual}) return values;
  if (!ignore_index) std::erase(values, kUsual);
  if (values.size() < 2) return {};
  if (values.back() + 1 == static_cast<std::int64_t>(values.size())) return values;
  throw ConfigError(
      {.place = (facts.root / facts.masks).string(),
       .found = "the masks have the values " + list_of_values(facts.mask_values),
       .wanted = "the class numbers 0, 1, … without gaps, and 255 for pixels that do not count",
       .remedy = "set data.mask_values = [" + list_of_values(facts.mask_values) +
                 "], a class for each value; or omit the value of the pixels that do not count, and set "
                 "data.ignore_index to it; if some classes do not occur, name all with data.classes"});
}

}  // namespace kindling
