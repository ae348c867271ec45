#include "kindling/data/cifar_data.h"

#include <sstream>
#include <utility>

#include "base/error_kind.h"
#include "data/sources/cifar_file.h"
#include "data/sources/data_file.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"
#include "kindling/data/data_directory.h"

namespace kindling {
namespace {

CifarRecord record_of(const CifarFiles& files) {
  return {.num_labels = files.num_labels, .label = files.label, .num_classes = files.num_classes};
}

CifarFiles cifar10_files() {
  return {.name = "cifar10",
          .folder = "cifar-10-batches-bin",
          .train = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                    "data_batch_5.bin"},
          .test = "test_batch.bin",
          .class_names = "batches.meta.txt"};
}

// A record begins with the coarse label.
CifarFiles cifar100_files(const Cifar100Options& options) {
  validate(options, "data");
  const bool is_fine = options.labels == "fine";
  return {.name = "cifar100",
          .folder = "cifar-100-binary",
          .train = {"train.bin"},
          .test = "test.bin",
          .class_names = is_fine ? "fine_label_names.txt" : "coarse_label_names.txt",
          .num_labels = 2,
          .label = is_fine ? 1 : 0,
          .num_classes = is_fine ? 100 : 20};
}

// Returns the lines that are not empty, without the '\r' of Windows.
std::vector<std::string> read_names(const std::filesystem::path& file) {
  constexpr std::size_t kMaxNamesBytes = std::size_t{1} << 16;
  std::istringstream text(with_errors_as<DataError>([&] { return read_file(file, kMaxNamesBytes); }));
  std::vector<std::string> names;
  for (std::string line; std::getline(text, line);) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return names;
}

}  // namespace

CifarData::CifarData(CifarFiles files, std::optional<std::filesystem::path> root, ImageScale scale,
                     DataOptions data_options)
    : ImageData(scale, std::move(data_options)), files_(std::move(files)), root_(std::move(root)) {}

std::filesystem::path CifarData::folder() const {
  const std::filesystem::path root = root_.value_or(data_directory(files_.name));
  return std::filesystem::exists(root / files_.train.front()) ? root : root / files_.folder;
}

void CifarData::prepare_data() {
  const std::filesystem::path in = folder();
  std::vector<std::string> names = files_.train;
  names.push_back(files_.test);
  for (const std::string& name : names) {
    if (!std::filesystem::exists(in / name))
      throw DataError({.place = (in / name).string(),
                       .found = "no such file",
                       .wanted = list_names(names) + " of the data set's binary version in " + in.string() +
                                 " or in its parent directory",
                       .remedy = how_to_fetch(files_.name, root_)});
    count_cifar_records(in / name, record_of(files_));
  }
}

ImageData::Split CifarData::load() {
  prepare_data();
  const std::filesystem::path in = folder();
  std::vector<std::filesystem::path> train;
  for (const std::string& name : files_.train) train.push_back(in / name);
  return {.train = read_cifar_files(train, record_of(files_)),
          .val = read_cifar_files({in / files_.test}, record_of(files_))};
}

std::vector<std::string> CifarData::class_names() {
  const std::filesystem::path file = folder() / files_.class_names;
  if (!std::filesystem::exists(file)) return {};
  std::vector<std::string> names = read_names(file);
  if (static_cast<std::int64_t>(names.size()) != files_.num_classes)
    throw DataError({.place = file.string(),
                     .found = "the file has " + std::to_string(names.size()) + " names",
                     .wanted = std::to_string(files_.num_classes) + " names of classes, one per line"});
  return names;
}

Cifar10::Cifar10(Cifar10Options options, DataOptions data_options)
    : CifarData(cifar10_files(), std::move(options.root), {.normalize = options.normalize},
                std::move(data_options)) {}

Cifar100::Cifar100(Cifar100Options options, DataOptions data_options)
    : CifarData(cifar100_files(options), std::move(options.root), {.normalize = options.normalize},
                std::move(data_options)) {}

}  // namespace kindling
