#include "data/sources/image_files.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "base/joined.h"
#include "base/worker_pool.h"
#include "data/sources/data_checks.h"
#include "data/sources/table_labels.h"
#include "data/sources/table_rows.h"
#include "kindling/base/error.h"
#include "kindling/formats/image.h"
#include "kindling/formats/table.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRelativePaths = "relative paths are relative to the config file's directory";

bool has_image_extension(const fs::path& file) {
  const std::string extension = lower_case(file.extension().string());
  return extension == ".png" || extension == ".jpg" || extension == ".jpeg";
}

// Returns the names in a directory that `is_wanted` chooses, sorted bytewise. Hidden ones are skipped.
template <class Predicate>
std::vector<std::string> sorted_names(const fs::path& folder, Predicate is_wanted) {
  std::vector<std::string> names;
  try {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      if (const std::string name = entry.path().filename().string();
          !name.starts_with(".") && is_wanted(entry))
        names.push_back(name);
  } catch (const fs::filesystem_error& error) {
    throw DataError({.place = folder.string(), .found = error.code().message(), .wanted = "a directory"});
  }
  std::sort(names.begin(), names.end());
  return names;
}

// Returns what is wrong with each file; an empty text: nothing.
std::vector<std::string> errors_of(const ImageFiles& files) {
  std::vector<std::string> errors(files.names.size());
  const std::size_t num_threads = std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, 64);
  const auto check_every = [&](std::size_t first) {
    for (std::size_t i = first; i < errors.size(); i += num_threads) try {
        read_image(files.path(i));
      } catch (const DataError& error) {
        errors[i] = error.what();
      }
  };
  WorkerPool threads(static_cast<std::int64_t>(num_threads));
  std::vector<std::shared_ptr<WorkerPool::Task>> tasks;
  for (std::size_t first = 0; first < num_threads; ++first)
    tasks.push_back(threads.submit([&check_every, first] { check_every(first); }));
  for (const auto& task : tasks) task->wait();
  return errors;
}

}  // namespace

ImageFiles files_in_class_folders(const fs::path& root) {
  if (!fs::is_directory(root))
    throw DataError({.place = root.string(),
                     .found = fs::exists(root) ? "it is not a directory" : "no such directory",
                     .wanted = "the directory of data.root, with a directory of images per class",
                     .remedy = kRelativePaths});
  ImageFiles files{.folder = root};
  files.classes = sorted_names(root, [](const fs::directory_entry& entry) { return entry.is_directory(); });
  if (files.classes.empty())
    throw DataError({.place = root.string(),
                     .found = "there are no directories in it",
                     .wanted = "a directory of images per class",
                     .remedy = "or set data.list to a table with the columns file and label"});
  for (std::size_t label = 0; label < files.classes.size(); ++label) {
    const std::string& name = files.classes[label];
    const auto images = sorted_names(root / name, [](const fs::directory_entry& entry) {
      return has_image_extension(entry.path()) && !entry.is_directory();
    });
    if (images.empty())
      throw DataError({.place = (root / name).string(),
                       .found = "there are no images of this class",
                       .wanted = "files that end with .png, .jpg or .jpeg",
                       .remedy = "remove the directory if it is not a class"});
    for (const std::string& image : images) files.names.push_back(name + "/" + image);
    files.labels.resize(files.names.size(), static_cast<std::int64_t>(label));
  }
  return files;
}

ImageFiles files_in_list(const fs::path& list, const fs::path& folder, const std::string& weights,
                         bool must_exist) {
  if (!fs::exists(list))
    throw DataError({.place = list.string(),
                     .found = "no such file",
                     .wanted = "the table of data.list, with the columns file and label",
                     .remedy = kRelativePaths});
  const std::string place = list.string();
  const Table table = read_table(list, {.categories = {"file"}});
  const TableColumn& column = require_column(table, "file", "data.list", place);
  require_column(table, "label", "data.list", place);
  if (table.num_rows == 0)
    throw DataError({.place = place, .found = "the list has no rows", .wanted = "at least one"});
  const TableSchema schema = schema_of(table, {.label = "label", .features = {"file"}}, place);
  const at::Tensor labels = labels_of(table, {.label = "label", .classes = schema.classes}, nullptr, place);
  ImageFiles files{.folder = folder, .classes = schema.classes};
  files.labels.assign(labels.const_data_ptr<std::int64_t>(),
                      labels.const_data_ptr<std::int64_t>() + labels.numel());
  if (!weights.empty()) {
    const at::Tensor all = weights_of(table, require_column(table, weights, "data.weights", place), place);
    files.weights.assign(all.const_data_ptr<double>(), all.const_data_ptr<double>() + all.numel());
  }
  for (std::size_t row = 0; row < table.num_rows; ++row) {
    const std::int32_t code = column.codes[row];
    files.names.push_back(code < 0 ? "" : column.categories[static_cast<std::size_t>(code)]);
    if (must_exist && (files.names.back().empty() || !fs::exists(files.path(row))))
      throw DataError({.place = place + ", row " + std::to_string(row + 1) + ", column 'file'",
                       .found = files.names.back().empty() ? "the file is missing"
                                                           : "there is no file " + files.path(row).string(),
                       .wanted = "a PNG or JPEG file",
                       .remedy = "correct the row, or set data.root to the directory of the files"});
  }
  return files;
}

std::vector<std::string> drop_broken_files(ImageFiles& files) {
  const std::vector<std::string> errors = errors_of(files);
  std::vector<std::string> names, broken;
  std::vector<std::int64_t> labels;
  std::vector<double> weights;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (!errors[i].empty()) {
      broken.push_back(errors[i]);
      continue;
    }
    names.push_back(std::move(files.names[i]));
    labels.push_back(files.labels[i]);
    if (!files.weights.empty()) weights.push_back(files.weights[i]);
  }
  if (names.empty())
    throw DataError({.place = files.folder.string(),
                     .found = "all " + std::to_string(broken.size()) + " images are broken; the first is " +
                              broken.front(),
                     .wanted = "images that can be read"});
  if (!broken.empty()) warn_of_skipped(broken, errors.size(), "images");
  files.names = std::move(names);
  files.labels = std::move(labels);
  files.weights = std::move(weights);
  return broken;
}

}  // namespace kindling
