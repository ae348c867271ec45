#include "kindling/data/cifar_data.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <utility>

#include "base/error_kind.h"
#include "data/sources/data_checks.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"
#include "kindling/data/data_directory.h"

namespace kindling {
namespace {

// What follows each other in the records of a CIFAR file: label bytes, then 32 x 32 red, green, blue values.
struct CifarRecord {
  static constexpr std::int64_t kPixelBytes = 3 * 32 * 32;
  std::int64_t num_labels = 1;
  std::int64_t label = 0;  // which of the label bytes counts
  std::int64_t num_classes = 10;

  std::int64_t num_bytes() const noexcept { return num_labels + kPixelBytes; }
};

constexpr std::int64_t kCifarRecordsAtOnce = 256;
constexpr std::int64_t kMaxCifarRecords = 1'000'000;  // the published files have at most 50,000

std::int64_t count_cifar_records_in(const InputFile& file, const CifarRecord& record) {
  const auto size = static_cast<std::int64_t>(file.size());
  if (size / record.num_bytes() > kMaxCifarRecords)
    throw DataError({.place = file.path().string(),
                     .found = "the file has " + std::to_string(size) + " bytes",
                     .wanted = "at most " + std::to_string(kMaxCifarRecords * record.num_bytes())});
  if (size > 0 && size % record.num_bytes() == 0) return size / record.num_bytes();
  throw DataError({.place = file.path().string(),
                   .found = "the file has " + std::to_string(size) + " bytes",
                   .wanted = "a multiple of " + std::to_string(record.num_bytes()) + ": " +
                             std::to_string(record.num_labels) +
                             (record.num_labels == 1 ? " label byte" : " label bytes") +
                             " and 3,072 bytes of pixels per image",
                   .remedy = "unpack the binary version of the data set again"});
}

std::uint8_t checked_label(const std::uint8_t* labels, const InputFile& file, std::int64_t sample,
                           const CifarRecord& record) {
  const std::uint8_t label = labels[record.label];
  if (label < record.num_classes) return label;
  throw DataError({.place = file.path().string(),
                   .found = "the label " + std::to_string(label) + " at byte " +
                            std::to_string(sample * record.num_bytes() + record.label) + " (image " +
                            std::to_string(sample) + ")",
                   .wanted = "labels below " + std::to_string(record.num_classes)});
}

// Writes `count` images and labels of a file.
void read_cifar_file(const InputFile& file, std::int64_t count, const CifarRecord& record,
                     std::uint8_t* images, std::uint8_t* labels) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(kCifarRecordsAtOnce * record.num_bytes()));
  for (std::int64_t begin = 0; begin < count; begin += kCifarRecordsAtOnce) {
    const std::int64_t end = std::min(begin + kCifarRecordsAtOnce, count);
    file.read(static_cast<std::size_t>(begin * record.num_bytes()), bytes.data(),
              static_cast<std::size_t>((end - begin) * record.num_bytes()));
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint8_t* const one = bytes.data() + (i - begin) * record.num_bytes();
      labels[i] = checked_label(one, file, i, record);
      std::memcpy(images + i * CifarRecord::kPixelBytes, one + record.num_labels, CifarRecord::kPixelBytes);
    }
  }
}

// Returns the number of records by the file's size. Throws DataError if that is not a whole number of them.
std::int64_t count_cifar_records(const std::filesystem::path& file, const CifarRecord& record) {
  return with_errors_as<DataError>([&] { return count_cifar_records_in(InputFile(file), record); });
}

// Reads the files one after another: images uint8 [n, 3, 32, 32], labels uint8 [n]. Checks all sizes before
// it allocates. Throws DataError with the file, and the byte of a label that is no class.
LabelledImages read_cifar_files(const std::vector<std::filesystem::path>& paths, const CifarRecord& record) {
  return with_errors_as<DataError>([&] {
    std::vector<InputFile> files;
    std::int64_t count = 0;
    for (const std::filesystem::path& path : paths)
      count += count_cifar_records_in(files.emplace_back(path), record);
    LabelledImages read{.images = at::empty({count, 3, 32, 32}, at::kByte),
                        .labels = at::empty({count}, at::kByte)};
    auto* images = read.images.mutable_data_ptr<std::uint8_t>();
    auto* labels = read.labels.mutable_data_ptr<std::uint8_t>();
    for (const InputFile& file : files) {
      const std::int64_t num_records = count_cifar_records_in(file, record);
      read_cifar_file(file, num_records, record, images, labels);
      images += num_records * CifarRecord::kPixelBytes;
      labels += num_records;
    }
    return read;
  });
}

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
                       .remedy = where_to_download(root_)});
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
