#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace kindling {

// Returns the folder of the MNIST test set: data/mnist-10k in the folder that KINDLING_SHARED names (CTest
// sets it), else in the current folder. The files need not exist.
inline std::filesystem::path mnist_folder() {
  const char* root = std::getenv("KINDLING_SHARED");
  return std::filesystem::path(root != nullptr && *root != '\0' ? root : ".") / "data" / "mnist-10k";
}

inline std::filesystem::path mnist_images() { return mnist_folder() / "t10k-images-idx3-ubyte.gz"; }
inline std::filesystem::path mnist_labels() { return mnist_folder() / "t10k-labels-idx1-ubyte.gz"; }

inline bool has_mnist() {
  return std::filesystem::exists(mnist_images()) && std::filesystem::exists(mnist_labels());
}

// Returns the message of a test that is skipped without the files. Compressed files differ between mirrors,
// so the sums are of unpacked bytes.
inline std::string missing_mnist() {
  return "the MNIST test set is not in " + mnist_folder().string() +
         ": put t10k-images-idx3-ubyte.gz (SHA-256 after unpacking: "
         "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7) and t10k-labels-idx1-ubyte.gz "
         "(SHA-256 after unpacking: ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2) there, "
         "or set KINDLING_SHARED to the folder that contains data/mnist-10k";
}

// Puts the four files of MNIST into a folder; all of them are the test set.
inline void link_mnist(const std::filesystem::path& folder) {
  const auto data = std::filesystem::absolute(mnist_folder());
  for (const char* part : {"train", "t10k"})
    for (const char* kind : {"-images-idx3-ubyte.gz", "-labels-idx1-ubyte.gz"})
      std::filesystem::create_symlink(data / (std::string("t10k") + kind),
                                      folder / (std::string(part) + kind));
}

}  // namespace kindling
