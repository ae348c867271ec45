#pragma once

#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/data/image_data.h"

namespace kindling {

struct IdxOptions {
  std::filesystem::path images{};  // IDX file, plain or .gz
  std::filesystem::path labels{};
  std::optional<std::array<double, 2>> normalize{};  // mean, standard deviation, after division by 255

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "images", &IdxOptions::images,
          {.doc = "IDX file of uint8 images, plain or .gz", .example = "\"images-idx3-ubyte.gz\""}),
      kindling::field(
          "labels", &IdxOptions::labels,
          {.doc = "IDX file of uint8 labels, plain or .gz", .example = "\"labels-idx1-ubyte.gz\""}),
      kindling::field("normalize", &IdxOptions::normalize,
                      {.doc = "[mean, std], applied after division by 255", .example = "[0.1307, 0.3081]"}));
};

// Data from any two IDX files of images and labels. DataOptions::train and DataOptions::val are ranges of its
// samples; without `val` there is no validation.
class KINDLING_API IdxData : public ImageData {
 public:
  explicit IdxData(IdxOptions options, DataOptions data_options = {});
  void prepare_data() override;

 protected:
  Split load() override;

 private:
  IdxOptions options_;
};

struct MnistOptions {
  // Directory of the four files; absent: the set's name below $KINDLING_DATA or the user's cache directory.
  std::optional<std::filesystem::path> root{};
  std::optional<std::array<double, 2>> normalize{};

  static constexpr auto fields = kindling::fields(
      kindling::field("root", &MnistOptions::root,
                      {.doc = "directory of the four IDX files; absent: $KINDLING_DATA or "
                              "~/.cache/kindling, followed by the name of the data set",
                       .example = "\"data/mnist\""}),
      kindling::field("normalize", &MnistOptions::normalize,
                      {.doc = "[mean, std], applied after division by 255", .example = "[0.1307, 0.3081]"}));
};

// The four files train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
// t10k-labels-idx1-ubyte, each with or without .gz, in one directory: 60,000 images for training, 10,000 for
// validation, [batch, 1, 28, 28].
class KINDLING_API Mnist : public ImageData {
 public:
  explicit Mnist(MnistOptions options, DataOptions data_options = {});
  void prepare_data() override;

 protected:
  // `name` is that of the data set, and of its directory if the options have none (data_directory()).
  Mnist(MnistOptions options, DataOptions data_options, std::string name);
  Split load() override;

 private:
  std::filesystem::path file(const std::string& stem) const;

  std::string name_;
  std::optional<std::filesystem::path> root_;
};

// The same four files with images of clothes (Xiao, Rasul, Vollgraf, 2017).
class KINDLING_API FashionMnist : public Mnist {
 public:
  explicit FashionMnist(MnistOptions options, DataOptions data_options = {});
};

}  // namespace kindling
