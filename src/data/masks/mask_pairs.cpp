#include "data/masks/mask_pairs.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error_kind.h"
#include "base/joined.h"
#include "data/sources/data_checks.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 10> kImageEndings{".png", ".jpg", ".jpeg", ".jpe", ".jfif",
                                                         ".mpo", ".bmp", ".webp", ".tif", ".tiff"};
constexpr std::string_view kMaskEnding = "_mask";

enum class Kind : std::uint8_t { image, mask };

// Files by their path without its ending.
using FilesByName = std::map<std::string, std::string>;

class FileFinder {
 public:
  FileFinder(fs::path folder, Kind kind, std::vector<std::string>& skipped)
      : folder_(std::move(folder)), kind_(kind), skipped_(skipped) {}

  FilesByName find() {
    const std::string key = kind_ == Kind::image ? "images" : "masks";
    if (!fs::is_directory(folder_))
      throw DataError({.place = folder_.string(),
                       .found = fs::exists(folder_) ? "it is not a directory" : "no such directory",
                       .wanted = "the directory of data." + key,
                       .remedy = "relative paths are relative to the config file's directory"});
    try {
      add_files("");
    } catch (const fs::filesystem_error& error) {
      throw DataError(
          {.place = error.path1().string(), .found = error.code().message(), .wanted = "a directory"});
    }
    return std::move(files_);
  }

 private:
  void add_files(const fs::path& inner) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_ / inner)) {
      const fs::path name = inner / entry.path().filename();
      if (entry.path().filename().string().starts_with(".")) continue;
      std::error_code broken_link;
      if (entry.is_directory(broken_link) && !entry.is_symlink(broken_link))
        add_files(name);
      else if (const std::string ending = lower_case(name.extension().string()); !is_wanted(ending))
        skipped_.push_back(entry.path().string() +
                           (kind_ == Kind::image ? ": by its ending not an image" : ": masks are PNG files"));
      else
        add_file(name);
    }
  }
  void add_file(const fs::path& name) {
    const auto [other, is_new] = files_.emplace(fs::path(name).replace_extension().string(), name.string());
    if (!is_new)
      throw DataError({.place = (folder_ / std::max(other->second, name.string())).string(),
                       .found = "there is also " + std::min(other->second, name.string()),
                       .wanted = "one file of this name",
                       .remedy = "remove or rename one of them"});
  }

  bool is_wanted(std::string_view ending) const {
    if (kind_ == Kind::mask) return ending == ".png";
    return std::ranges::find(kImageEndings, ending) != kImageEndings.end();
  }

  fs::path folder_;
  Kind kind_;
  std::vector<std::string>& skipped_;
  FilesByName files_{};
};

// The file is in `masks` by the name of the image, or with _mask after it.
FilesByName::iterator mask_of(const std::string& name, FilesByName& masks) {
  const auto found = masks.find(name);
  return found != masks.end() ? found : masks.find(name + std::string(kMaskEnding));
}

// Of one directory of both, NAME_mask.png is the mask of NAME: takes them from the images.
FilesByName take_masks(FilesByName& images) {
  FilesByName masks;
  for (const auto& [name, file] : images)
    if (name.ends_with(kMaskEnding) && lower_case(fs::path(file).extension().string()) == ".png")
      masks.emplace(name, file);
  for (const auto& [name, _] : masks) images.erase(name);
  return masks;
}

struct ImagesAndMasks {
  FilesByName images, masks;
};

ImagesAndMasks find_images_and_masks(const fs::path& images, const fs::path& masks,
                                     std::vector<std::string>& skipped) {
  ImagesAndMasks files{.images = FileFinder(images, Kind::image, skipped).find(), .masks = {}};
  if (std::error_code none; fs::equivalent(images, masks, none))
    files.masks = take_masks(files.images);
  else
    files.masks = FileFinder(masks, Kind::mask, skipped).find();
  std::ranges::sort(skipped);
  return files;
}

}  // namespace

MaskPairs find_mask_pairs(const fs::path& images, const fs::path& masks) {
  MaskPairs pairs{.images_folder = images, .masks_folder = masks};
  std::vector<std::string>& unpaired = pairs.unpaired;
  auto [all_images, all_masks] = find_images_and_masks(images, masks, unpaired);
  const std::size_t num_files = all_images.size() + all_masks.size() + unpaired.size();
  for (const auto& [name, image] : all_images) {
    const auto mask = mask_of(name, all_masks);
    if (mask == all_masks.end()) {
      unpaired.push_back((images / image).string() + ": there is no mask " + (masks / name).string() +
                         ".png");
      continue;
    }
    pairs.images.push_back(image);
    pairs.masks.push_back(mask->second);
    all_masks.erase(mask);
  }
  for (const auto& [name, mask] : all_masks)
    unpaired.push_back((masks / mask).string() + ": there is no image of this name in " + images.string());
  if (pairs.images.empty())
    throw DataError({.place = masks.string(),
                     .found = "no file in it is the mask of an image in " + images.string() +
                              (unpaired.empty() ? "" : ": " + unpaired.front()),
                     .wanted = "a mask NAME.png or NAME_mask.png for each image, such as NAME.jpg"});
  if (!unpaired.empty()) warn_of_skipped(images.string(), unpaired, num_files, "images and masks");
  return pairs;
}

std::vector<PairName> read_pair_names(const fs::path& list) {
  constexpr std::size_t kMaxBytes = std::size_t{1} << 28;
  std::istringstream lines(with_errors_as<DataError>([&] { return read_file(list, kMaxBytes); }));
  std::vector<PairName> names;
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.erase(line.find_last_not_of(" \t\r") + 1);
    if (!line.empty()) names.push_back({.name = line, .place = list.string() + ":" + std::to_string(number)});
  }
  if (names.empty())
    throw DataError({.place = list.string(),
                     .found = "no names",
                     .wanted = "the name of an image and its mask per line"});
  return names;
}

MaskPairs find_listed_pairs(const fs::path& images, const fs::path& masks,
                            const std::vector<PairName>& names) {
  MaskPairs pairs{.images_folder = images, .masks_folder = masks};
  std::vector<std::string> skipped;
  auto [all_images, all_masks] = find_images_and_masks(images, masks, skipped);
  std::map<std::string_view, std::string_view> places;
  for (const PairName& listed : names) {
    const std::string& name = listed.name;
    const auto refuse = [&](std::string found, const char* wanted) {
      throw DataError({.place = listed.place, .found = std::move(found), .wanted = wanted});
    };
    if (const auto [other, is_new] = places.emplace(name, listed.place); !is_new)
      refuse(name + " is also in " + std::string(other->second), "each pair once");
    const auto image = all_images.find(name);
    if (image == all_images.end())
      refuse("there is no image " + (images / name).string(),
             "a name per line, without an ending, relative to the directory of the images");
    const auto mask = mask_of(name, all_masks);
    if (mask == all_masks.end())
      refuse("there is no mask " + (masks / name).string() + ".png", "a mask for each image of the list");
    pairs.images.push_back(image->second);
    pairs.masks.push_back(mask->second);
  }
  return pairs;
}

MaskPairs find_images(const fs::path& path) {
  if (fs::is_regular_file(path))
    return {.images_folder = path.parent_path(), .images = {path.filename().string()}};
  MaskPairs images{.images_folder = path};
  for (auto& [name, image] : FileFinder(path, Kind::image, images.unpaired).find())
    images.images.push_back(image);
  if (images.images.empty())
    throw DataError({.place = path.string(), .found = "no images", .wanted = "images, or one image"});
  if (!images.unpaired.empty())
    warn_of_skipped(path.string(), images.unpaired, images.images.size() + images.unpaired.size(), "images");
  return images;
}

}  // namespace kindling
