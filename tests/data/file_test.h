#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {

// Tests that read files which they write, whose folder is left out of messages.
class FileTest : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& text) {
    std::ofstream(scratch_ / name) << text;
    return scratch_ / name;
  }
  std::string without_folder(std::string text) const {
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  // Returns the text of the error that `call` throws, or "no error".
  std::string message(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return without_folder(error.what());
    }
    return "no error";
  }

  Scratch scratch_;
};

}  // namespace kindling
