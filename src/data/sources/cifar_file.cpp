#include "data/sources/cifar_file.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>

#include "base/error_kind.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

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

}  // namespace

std::int64_t count_cifar_records(const std::filesystem::path& file, const CifarRecord& record) {
  return with_errors_as<DataError>([&] { return count_cifar_records_in(InputFile(file), record); });
}

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

}  // namespace kindling
