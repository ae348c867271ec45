#include "kindling/data/idx_data.h"

#include <cstdlib>

#include "data/sources/data_file.h"
#include "data/sources/idx_tensor.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Images and labels for training, images and labels for validation.
constexpr std::array<const char*, 4> kFiles{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                            "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

std::filesystem::path data_directory() {
  if (const char* set = std::getenv("KINDLING_DATA"); set != nullptr && *set != '\0') return set;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "kindling";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : ".") / ".cache" / "kindling";
}

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
    : Mnist(std::move(options), std::move(data_options), "mnist",
            "https://ossci-datasets.s3.amazonaws.com/mnist/") {}

Mnist::Mnist(MnistOptions options, DataOptions data_options, const std::string& name, std::string source)
    : ImageData({.divisor = 255, .normalize = options.normalize}, std::move(data_options)),
      root_(options.root.value_or(data_directory() / name)),
      source_(std::move(source)) {}

std::filesystem::path Mnist::file(const std::string& stem) const {
  for (const char* ending : {".gz", ""}) {
    const auto path = root_ / (stem + ending);
    if (std::filesystem::exists(path)) return path;
  }
  throw DataError({.place = (root_ / stem).string() + "[.gz]",
                   .found = "no such file",
                   .wanted = "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and "
                             "t10k-labels-idx1-ubyte, each with or without .gz, in " +
                             root_.string(),
                   .remedy = "download them from " + source_ + " or set data.root to their directory"});
}

void Mnist::prepare_data() {
  for (const char* stem : kFiles) file(stem);
}

ImageData::Split Mnist::load() {
  return {.train = read_labelled_images(file(kFiles[0]), file(kFiles[1])),
          .val = read_labelled_images(file(kFiles[2]), file(kFiles[3]))};
}

FashionMnist::FashionMnist(MnistOptions options, DataOptions data_options)
    : Mnist(std::move(options), std::move(data_options), "fashion_mnist",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/") {}

}  // namespace kindling
