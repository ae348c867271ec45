#include "kindling/data/idx_data.h"

#include "data/sources/data_checks.h"
#include "data/sources/idx_tensor.h"
#include "kindling/base/error.h"
#include "kindling/data/data_directory.h"

namespace kindling {
namespace {

// Images and labels for training, images and labels for validation.
constexpr std::array<const char*, 4> kFiles{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

}  // namespace

IdxData::IdxData(IdxOptions options, DataOptions data_options)
    : ImageData({.divisor = 255, .normalize = options.normalize}, std::move(data_options)),
      options_(std::move(options)) {}

void IdxData::prepare_data() {
  require_data_file(options_.images, "images", "an IDX file");
  require_data_file(options_.labels, "labels", "an IDX file");
}

ImageData::Split IdxData::load() {
  prepare_data();
  return {.train = read_labelled_images(options_.images, options_.labels), .val = {}};
}

Mnist::Mnist(MnistOptions options, DataOptions data_options)
    : Mnist(std::move(options), std::move(data_options), "mnist") {}

Mnist::Mnist(MnistOptions options, DataOptions data_options, std::string name)
    : ImageData({.divisor = 255, .normalize = options.normalize}, std::move(data_options)),
      name_(std::move(name)),
      root_(std::move(options.root)) {}

std::filesystem::path Mnist::file(const std::string& stem) const {
  const std::filesystem::path root = root_.value_or(data_directory(name_));
  for (const char* ending : {".gz", ""}) {
    const auto path = root / (stem + ending);
    if (std::filesystem::exists(path)) return path;
  }
  throw DataError({.place = (root / stem).string() + "[.gz]",
                   .found = "no such file",
                   .wanted = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                             "t10k-labels-idx1-ubyte, each with or without .gz, in " +
                             root.string(),
                   .remedy = where_to_download(root_)});
}

void Mnist::prepare_data() {
  for (const char* stem : kFiles) file(stem);
}

ImageData::Split Mnist::load() {
  return {.train = read_labelled_images(file(kFiles[0]), file(kFiles[1])),
          .val = read_labelled_images(file(kFiles[2]), file(kFiles[3]))};
}

FashionMnist::FashionMnist(MnistOptions options, DataOptions data_options)
    : Mnist(std::move(options), std::move(data_options), "fashion_mnist") {}

}  // namespace kindling
