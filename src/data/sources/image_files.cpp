#include "data/sources/image_files.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "base/joined.h"
#include "base/worker_pool.h"
#include "data/sources/data_checks.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "kindling/formats/image.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelativePaths = "relative paths are relative to the config file's directory";

constexpr const char* kFormats = "PNG, JPEG, BMP, WebP or TIFF";

template <std::size_t kCount>
bool has_extension(const fs::path& file, const std::array<const char*, kCount>& extensions) {
  return std::ranges::find(extensions, lower_case(file.extension().string())) != extensions.end();
}

// The most frequent images, which are not opened before they are needed.
constexpr std::array kCommonExtensions{".png", ".jpg", ".jpeg"};
constexpr std::array kOtherExtensions{".jpe", ".jfif", ".mpo", ".bmp", ".webp", ".tif", ".tiff"};

// Both are false for links that lead nowhere or to themselves.
bool leads_to_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}
bool leads_to_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns the names in a directory, sorted bytewise.
std::vector<std::string> sorted_names(const fs::path& folder) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      names.push_back(entry.path().filename().string());
  } catch (const fs::filesystem_error& error) {
    throw DataError({.place = folder.string(), .found = error.code().message(), .wanted = "a directory"});
  }
  std::ranges::sort(names);
  return names;
}

bool is_hidden(const std::string& name) { return name.starts_with("."); }

// Returns nothing for a file that cannot be read.
std::optional<std::string> first_bytes(const fs::path& file) {
  constexpr std::streamsize kEnough = 32;
  std::string bytes(kEnough, '\0');
  std::ifstream stream(file, std::ios::binary);
  stream.read(bytes.data(), kEnough);
  if (!stream.is_open() || stream.bad()) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(stream.gcount()));
  return bytes;
}

// The files of class directories by what they are.
class FoundFiles {
 public:
  FoundFiles(const fs::path& root, ImageFiles& images) : root_(root), images_(images) {}

  void add_class(const std::string& name) {
    visited_.clear();
    visit("");
    if (visit(name)) add_folder(name);
  }
  void add_hidden() { ++num_hidden_; }
  void add_runs(const std::string& folder) { runs_.push_back(folder); }
  void add_other(std::string path) { others_.push_back(std::move(path)); }

  void log() const {
    if (!images_.unread.empty())
      warn_of_skipped(images_.folder.string(), images_.unread, images_.names.size() + images_.unread.size(),
                      "images");
    if (others_.empty() && num_hidden_ == 0 && runs_.empty()) return;
    std::string text = images_.folder.string() + ": " + counted(images_.names.size(), "image");
    if (!others_.empty())
      text += "; no images: " + counted(others_.size(), "file") + ", such as " + one_line(others_.front());
    if (num_hidden_ > 0)
      text += "; hidden: " + std::to_string(num_hidden_) +
              (num_hidden_ == 1 ? " file or directory" : " files or directories");
    if (!runs_.empty()) text += "; directories of runs, not classes: " + joined(runs_, ", ", one_line);
    others_.empty() ? log_info(text) : log_warning(text);
  }

 private:
  // Returns false if the directory has been visited: links may name it again.
  bool visit(const std::string& folder) {
    std::error_code error;
    const fs::path path = fs::canonical(root_ / folder, error);
    if (error)
      throw DataError(
          {.place = (root_ / folder).string(), .found = error.message(), .wanted = "a directory"});
    return visited_.insert(path).second;
  }
  // Adds the files of a directory, then those of the directories in it.
  void add_folder(const std::string& folder) {
    std::vector<std::string> folders;
    for (const std::string& name : sorted_names(root_ / folder)) {
      const std::string path = folder + "/" + name;
      if (is_hidden(name))
        ++num_hidden_;
      else if (leads_to_directory(root_ / path))
        folders.push_back(path);
      else
        add_file(path);
    }
    for (const std::string& inner : folders)
      if (visit(inner)) add_folder(inner);
  }
  // Only regular files are opened: a pipe would wait for its other end.
  void add_file(const std::string& path) {
    const bool is_regular = leads_to_file(root_ / path),
               may_be_image = is_regular || fs::is_symlink(root_ / path);
    if (may_be_image && has_extension(path, kCommonExtensions)) {
      images_.names.push_back(path);
      return;
    }
    const auto bytes = is_regular ? first_bytes(root_ / path) : std::optional<std::string>("");
    const std::string format(bytes ? image_format(*bytes) : "");
    if (!format.empty() && !can_read_image(format)) images_.unread.push_back(error_of(path, *bytes));
    // The error of a sample names a file that is damaged or cannot be opened.
    else if (!format.empty() || !bytes || (may_be_image && has_extension(path, kOtherExtensions)))
      images_.names.push_back(path);
    else
      others_.push_back(path);
  }
  std::string error_of(const std::string& path, const std::string& bytes) const try {
    parse_image(bytes, (root_ / path).string());
    return "";
  } catch (const DataError& error) {
    return error.what();
  }

  const fs::path& root_;
  ImageFiles& images_;
  std::vector<std::string> others_{}, runs_{};
  std::size_t num_hidden_ = 0;
  std::set<fs::path> visited_{};  // directories of the class
};

// Returns what is wrong with each file; an empty text: nothing.
std::vector<std::string> errors_of(const ImageFiles& files) {
  std::vector<std::string> errors(files.names.size());
  run_on_all_cores(errors.size(), [&](std::size_t i) {
    try {
      read_image(files.path(i));
    } catch (const DataError& error) {
      errors[i] = error.what();
    }
  });
  return errors;
}

// Returns the directories in a directory; none if it has images, so that large classes are not listed.
std::vector<fs::path> folders_without_images(const fs::path& folder) {
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    if (has_extension(entry->path(), kCommonExtensions)) return {};
    if (std::error_code ignored; entry->is_directory(ignored)) folders.push_back(entry->path());
  }
  return folders;
}

}  // namespace

bool holds_runs(const fs::path& folder) {
  const auto is_run = [](const fs::path& path) {
    std::error_code ignored;
    return path.filename().string().find_first_not_of("0123456789") == std::string::npos &&
           fs::is_regular_file(path / "config.toml", ignored);
  };
  return std::ranges::any_of(folders_without_images(folder), [&](const fs::path& name) {
    return std::ranges::any_of(folders_without_images(name), is_run);
  });
}

ImageFiles files_in_class_folders(const fs::path& root, const std::string& key) {
  if (!fs::is_directory(root))
    throw DataError({.place = root.string(),
                     .found = fs::exists(root) ? "it is not a directory" : "no such directory",
                     .wanted = "the directory of " + key + ", with a directory of images per class",
                     .remedy = kRelativePaths});
  ImageFiles files{.folder = root};
  FoundFiles found(root, files);
  for (const std::string& name : sorted_names(root)) {
    if (is_hidden(name))
      found.add_hidden();
    else if (leads_to_directory(root / name) && holds_runs(root / name))
      found.add_runs(name);
    else if (leads_to_directory(root / name))
      files.classes.push_back(name);
    else
      found.add_other(name);
  }
  if (files.classes.empty())
    throw DataError({.place = root.string(),
                     .found = "there are no directories in it",
                     .wanted = "a directory of images per class",
                     .remedy = "or set data.list to a table with the columns file and label"});
  for (std::size_t label = 0; label < files.classes.size(); ++label) {
    const std::string& name = files.classes[label];
    const std::size_t unread_before = files.unread.size();
    found.add_class(name);
    if (files.names.size() == files.labels.size())
      throw DataError(
          {.place = (root / name).string(),
           .found = "there are no images of this class" + (files.unread.size() == unread_before
                                                               ? std::string()
                                                               : ", but " + files.unread[unread_before]),
           .wanted = std::string(kFormats) + " files",
           .remedy = "remove the directory if it is not a class"});
    files.labels.resize(files.names.size(), static_cast<std::int64_t>(label));
  }
  found.log();
  return files;
}

std::vector<std::string> drop_broken_files(ImageFiles& files) {
  const std::vector<std::string> errors = errors_of(files);
  std::vector<std::string> names, broken;
  std::vector<std::int64_t> labels;
  std::vector<double> weights;
  std::vector<std::int64_t> kept;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i].empty()) {
      broken.push_back(errors[i]);
      continue;
    }
    names.push_back(std::move(files.names[i]));
    kept.push_back(static_cast<std::int64_t>(i));
    if (!files.labels.empty()) labels.push_back(files.labels[i]);
    if (!files.weights.empty()) weights.push_back(files.weights[i]);
  }
  if (names.empty())
    throw DataError({.place = files.folder.string(),
                     .found = "all " + std::to_string(broken.size()) + " images are broken; the first is " +
                              broken.front(),
                     .wanted = "images that can be read"});
  if (!broken.empty()) warn_of_skipped("data.on_broken", broken, errors.size(), "images");
  files.names = std::move(names);
  files.labels = std::move(labels);
  files.weights = std::move(weights);
  if (files.targets.defined()) files.targets = files.targets.index_select(0, at::tensor(kept, at::kLong));
  return broken;
}

}  // namespace kindling
