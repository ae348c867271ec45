#pragma once

#include <cstdlib>
#include <filesystem>

namespace kindling {

// A file or directory of the data and golden numbers outside the repository (KINDLING_SHARED); an empty path
// if it does not exist.
inline std::filesystem::path shared_data(const char* name) {
  const char* root = std::getenv("KINDLING_SHARED");
  if (root == nullptr || *root == '\0') return {};
  const auto path = std::filesystem::path(root) / name;
  return std::filesystem::exists(path) ? path : std::filesystem::path();
}

}  // namespace kindling

// Defines the path `variable`, or skips the test.
#define KINDLING_REQUIRE_SHARED(variable, name)        \
  const auto variable = ::kindling::shared_data(name); \
  if (variable.empty()) GTEST_SKIP() << "KINDLING_SHARED has no " << (name)
