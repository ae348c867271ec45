#include "data/masks/mask_values.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "base/joined.h"
#include "base/worker_pool.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

using Occurs = std::array<bool, 256>;

// Returns which values the masks have, all or `most` of them, evenly spaced. Throws the error of a file that
// cannot be read.
Occurs values_in(const MaskPairs& pairs, std::size_t most) {
  const std::size_t count = std::min(most, pairs.masks.size());
  std::vector<Occurs> of_masks(count);
  run_on_all_cores(count, [&](std::size_t i) {
    for (const std::uint8_t value : read_mask(pairs.mask(i * pairs.masks.size() / count)).pixels)
      of_masks[i][value] = true;
  });
  Occurs occurs{};
  for (const Occurs& of_mask : of_masks)
    for (std::size_t value = 0; value < occurs.size(); ++value) occurs[value] |= of_mask[value];
  return occurs;
}

std::string list_of(const std::vector<std::int64_t>& values) {
  constexpr std::size_t kMost = 10;
  const std::vector<std::int64_t> first(
      values.begin(), values.begin() + static_cast<std::ptrdiff_t>(std::min(kMost, values.size())));
  return joined(first, ", ", [](std::int64_t value) { return std::to_string(value); }) +
         (values.size() > kMost ? ", …" : "");
}

// Returns the values 0, 1, … of the classes in the masks.
std::vector<std::int64_t> counted_classes(const MaskPairs& pairs, std::int64_t ignore_index) {
  const std::vector<std::int64_t> all = values_in_masks(pairs);
  std::vector<std::int64_t> classes = all;
  std::erase(classes, ignore_index);
  if (classes.size() < 2)
    throw DataError({.place = pairs.masks_folder.string(),
                     .found = "the masks have the values " + list_of(all) +
                              (classes.size() < all.size() ? ", and " + std::to_string(ignore_index) +
                                                                 " is ignored (data.ignore_index)"
                                                           : ""),
                     .wanted = "at least two classes",
                     .remedy = "for masks of 0 and 255, set data.mask_values = [0, 255]"});
  const std::int64_t num_classes = classes.back() + 1;
  if (num_classes > static_cast<std::int64_t>(classes.size()))
    log_warning(pairs.masks_folder.string() + ": the masks have the values " + list_of(classes) +
                ", which are " + std::to_string(num_classes) +
                " classes, of which some do not occur; if the values are not class "
                "numbers, set data.mask_values = [" +
                list_of(classes) + "]");
  classes.resize(static_cast<std::size_t>(num_classes));
  std::iota(classes.begin(), classes.end(), 0);
  return classes;
}

// Masks of two classes often have 0 and 255: with named classes, the pixels of the second would be ignored.
void refuse_ignored_class(const MaskPairs& pairs, std::size_t num_classes, std::int64_t ignore_index) {
  constexpr std::size_t kEnough = 32;
  const Occurs occurs = values_in(pairs, kEnough);
  const auto end = occurs.begin() + static_cast<std::ptrdiff_t>(num_classes);
  if (std::find(occurs.begin() + 1, end, true) != end || !occurs[static_cast<std::size_t>(ignore_index)])
    return;
  throw DataError({.place = pairs.masks_folder.string(),
                   .found = "the masks have pixels of " + std::to_string(ignore_index) +
                            ", which would be ignored, and none of a class above 0",
                   .wanted = "the class numbers 0, 1, …",
                   .remedy = "for masks of 0 and 255, set data.mask_values = [0, 255]; if such pixels do not "
                             "count, set data.ignore_index = 255"});
}

}  // namespace

void MaskValues::check(const Image& mask, const std::filesystem::path& file) const {
  const auto wrong =
      std::ranges::find_if(mask.pixels, [&](std::uint8_t value) { return labels[value] == kNoClass; });
  if (wrong == mask.pixels.end()) return;
  const auto at = static_cast<std::int64_t>(wrong - mask.pixels.begin());
  throw DataError({.place = file.string(),
                   .found = "the pixel in row " + std::to_string(at / mask.width) + ", column " +
                            std::to_string(at % mask.width) + " (from 0) has the value " +
                            std::to_string(*wrong),
                   .wanted = wanted,
                   .remedy = "correct the mask, or data.classes, data.mask_values and data.ignore_index"});
}

std::vector<std::int64_t> values_in_masks(const MaskPairs& pairs) {
  const Occurs occurs = values_in(pairs, pairs.masks.size());
  std::vector<std::int64_t> values;
  for (std::size_t value = 0; value < occurs.size(); ++value)
    if (occurs[value]) values.push_back(static_cast<std::int64_t>(value));
  return values;
}

MaskValues mask_values_of(const MaskPairs& pairs, const SegmentationFolderOptions& options) {
  MaskValues values{.classes = options.classes};
  constexpr std::int64_t kUsual = 255, kNone = -1;
  const bool is_class =
      std::ranges::find(options.mask_values, kUsual) != options.mask_values.end() ||
      (options.mask_values.empty() && static_cast<std::int64_t>(options.classes.size()) > kUsual);
  const std::int64_t ignore_index = options.ignore_index.value_or(is_class ? kNone : kUsual);
  std::vector<std::int64_t> of_classes = options.mask_values;
  if (of_classes.empty() && options.classes.empty()) {
    of_classes = counted_classes(pairs, ignore_index);
  } else if (of_classes.empty()) {
    if (!options.ignore_index && ignore_index != kNone)
      refuse_ignored_class(pairs, options.classes.size(), ignore_index);
    of_classes.resize(options.classes.size());
    std::iota(of_classes.begin(), of_classes.end(), 0);
  }
  if (values.classes.empty())
    for (std::size_t i = 0; i < of_classes.size(); ++i) values.classes.push_back(std::to_string(i));
  values.labels.fill(MaskValues::kNoClass);
  for (std::size_t i = 0; i < of_classes.size(); ++i)
    values.labels[static_cast<std::size_t>(of_classes[i])] = static_cast<std::int16_t>(i);
  values.wanted = options.mask_values.empty() ? "values from 0 to " + std::to_string(of_classes.back())
                                              : "one of the values " + list_of(of_classes);
  if (ignore_index != kNone) {
    values.labels[static_cast<std::size_t>(ignore_index)] = MaskValues::kIgnored;
    values.wanted += ", or " + std::to_string(ignore_index) + ", which is ignored";
  }
  return values;
}

}  // namespace kindling
