#include "data/sources/data_file.h"

#include <string>

#include "kindling/base/error.h"

namespace kindling {

void require_data_file(const std::filesystem::path& path, const char* key, const char* kind) {
  const std::string with_article = kind, without_article = with_article.substr(with_article.find(' '));
  if (path.empty())
    throw DataError(
        {.place = std::string("data.") + key, .found = "no file is given", .wanted = with_article});
  if (!std::filesystem::exists(path))
    throw DataError({.place = path.string(),
                     .found = "no such file",
                     .wanted = "the" + without_article + " of data." + key,
                     .remedy = "relative paths are relative to the config file's directory"});
}

}  // namespace kindling
