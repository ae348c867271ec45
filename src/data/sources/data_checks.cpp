#include "data/sources/data_checks.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/data_directory.h"

namespace kindling {

void require_data_file(const std::filesystem::path& path, const char* key, const char* kind) {
  const std::string with_article = kind, without_article = with_article.substr(with_article.find(' '));
  if (path.empty())
    throw ConfigError(
        {.place = std::string("data.") + key, .found = "no file is given", .wanted = with_article});
  if (!std::filesystem::exists(path))
    throw DataError({.place = path.string(),
                     .found = "no such file",
                     .wanted = "the" + without_article + " of data." + key,
                     .remedy = "relative paths are relative to the config file's directory"});
}

std::string where_to_download(const std::optional<std::filesystem::path>& root) {
  const std::string page = "docs/reference/data_files.md says where to download them";
  return root ? page : page + "; or set data.root to their directory";
}

std::filesystem::path data_directory(const std::string& name) {
  if (const char* set = std::getenv("KINDLING_DATA"); set != nullptr && *set != '\0')
    return std::filesystem::path(set) / name;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "kindling" / name;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home != nullptr ? home : ".") / ".cache" / "kindling" / name;
}

void warn_of_skipped(const std::string& place, const std::vector<std::string>& errors,
                     std::size_t num_samples, const std::string& samples) {
  constexpr std::size_t kMostNamed = 5;
  std::string text = place + ": skipped " + std::to_string(errors.size()) + " of " +
                     std::to_string(num_samples) + " " + samples + ", which cannot be used:";
  for (std::size_t i = 0; i < std::min(errors.size(), kMostNamed); ++i) text += "\n  " + errors[i];
  if (errors.size() > kMostNamed)
    text +=
        "\n  and " + std::to_string(errors.size() - kMostNamed) + " more; `kindling data check` lists all";
  log_warning(text);
}

std::shared_ptr<const Sampler> weighted_training(const at::Tensor& weights, std::int64_t seed,
                                                 const std::string& place, const std::string& samples) {
  if (weights.numel() > 0 && weights.max().item<double>() == 0)
    throw DataError({.place = place,
                     .found = "all training " + samples + " have the weight 0",
                     .wanted = "at least one with a larger weight"});
  return std::make_shared<WeightedSampler>(weights, seed);
}

}  // namespace kindling
