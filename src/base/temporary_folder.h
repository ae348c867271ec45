#pragma once

#include <stdlib.h>  // mkdtemp

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

#include "kindling/base/error.h"

namespace kindling {

// A directory that only this user can enter, removed by the destructor. Throws Error if it cannot be created.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kindling-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error({.place = name,
                   .found = "cannot create the directory: " + std::generic_category().message(errno),
                   .remedy = "set TMPDIR to a writable directory"});
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace kindling
