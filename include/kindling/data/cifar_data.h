#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/image_data.h"

namespace kindling {

struct Cifar10Options {
  // Directory of the files, or the one that contains cifar-10-batches-bin; absent: data_directory("cifar10").
  std::optional<std::filesystem::path> root{};
  std::optional<std::array<double, 2>> normalize{};

  static constexpr auto fields = kindling::fields(
      kindling::field("root", &Cifar10Options::root,
                      {.doc = "directory that contains cifar-10-batches-bin, or its files; absent: "
                              "$KINDLING_DATA or ~/.cache/kindling, followed by the name of the data set",
                       .example = "\"data/cifar10\""}),
      kindling::field("normalize", &Cifar10Options::normalize,
                      {.doc = "[mean, std] of all channels, applied after division by 255",
                       .example = "[0.473, 0.251]"}));
};

struct Cifar100Options {
  // Directory of the files, or the one that contains cifar-100-binary; absent: data_directory("cifar100").
  std::optional<std::filesystem::path> root{};
  std::string labels = "fine";  // "fine": 100 classes, "coarse": 20
  std::optional<std::array<double, 2>> normalize{};

  static constexpr auto fields = kindling::fields(
      kindling::field("root", &Cifar100Options::root,
                      {.doc = "directory that contains cifar-100-binary, or its files; absent: "
                              "$KINDLING_DATA or ~/.cache/kindling, followed by the name of the data set",
                       .example = "\"data/cifar100\""}),
      kindling::field("labels", &Cifar100Options::labels,
                      {.doc = "fine: 100 classes, coarse: 20 groups of them", .choices = "fine|coarse"}),
      kindling::field("normalize", &Cifar100Options::normalize,
                      {.doc = "[mean, std] of all channels, applied after division by 255",
                       .example = "[0.478, 0.268]"}));
};

// The files of a CIFAR data set and what is in them.
struct CifarFiles {
  std::string name{};                // of the data set
  std::string folder{};              // in the archive
  std::vector<std::string> train{};  // file names
  std::string test{};
  std::string class_names{};    // a text file with a name per line; it may be missing
  std::int64_t num_labels = 1;  // label bytes of a record
  std::int64_t label = 0;       // which of them counts
  std::int64_t num_classes = 10;
};

// The binary version of CIFAR (Krizhevsky, 2009): images of 32 x 32 pixels in color, [batch, 3, 32, 32], in
// records of one or two label bytes and 3,072 bytes of pixels. Validation uses the test file.
class KINDLING_API CifarData : public ImageData {
 public:
  void prepare_data()
      override;  // throws DataError for missing files and for sizes that are not whole records
  // Returns the names in the archive's text file; none without it. Throws DataError for another number of
  // names.
  std::vector<std::string> class_names() override;

 protected:
  CifarData(CifarFiles files, std::optional<std::filesystem::path> root, ImageScale scale,
            DataOptions data_options);
  Split load() override;

 private:
  std::filesystem::path folder() const;

  CifarFiles files_;
  std::optional<std::filesystem::path> root_;
};

// data_batch_1.bin … data_batch_5.bin and test_batch.bin: 50,000 images for training, 10,000 for validation.
class KINDLING_API Cifar10 : public CifarData {
 public:
  explicit Cifar10(Cifar10Options options, DataOptions data_options = {});
};

// train.bin and test.bin: as many images of 100 classes, or of 20 coarse ones.
class KINDLING_API Cifar100 : public CifarData {
 public:
  // Throws ConfigError for unknown labels.
  explicit Cifar100(Cifar100Options options, DataOptions data_options = {});
};

}  // namespace kindling
