#include "cli/config/config_words.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "base/joined.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

// With a config and weights there is no run, and the only word is the file to predict.
void take_file_to_predict(Request& request) {
  const std::filesystem::path word = request.evaluation.run;
  if (request.command != "predict" || request.configs.empty() || request.weights.empty() ||
      !request.evaluation.input.empty() || word.extension() == ".safetensors")
    return;
  if (std::error_code ignored; !std::filesystem::is_regular_file(word, ignored)) return;
  request.evaluation.input = word;
  request.evaluation.run.clear();
}

// True for a file that is a table by its extension, of a format that is read or named in an error.
bool is_table(const std::filesystem::path& word) {
  const std::string extension = lower_case(word.extension().string());
  for (const char* const compressed : {".gz", ".bz2", ".xz", ".zst"})
    if (extension == compressed) return true;
  constexpr std::array<std::string_view, 15> kTables{".csv", ".tsv",  ".tab",     ".psv",     ".txt",
                                                     ".dat", ".data", ".json",    ".jsonl",   ".ndjson",
                                                     ".xls", ".xlsx", ".parquet", ".feather", ".arrow"};
  return std::find(kTables.begin(), kTables.end(), extension) != kTables.end();
}

void take_table(Request& request, const std::filesystem::path& word) {
  if (!request.table.empty())
    throw ConfigError({.place = "kindling " + request.command,
                       .found = "two tables, " + request.table.string() + " and " + word.string(),
                       .wanted = "one table",
                       .remedy = "name further ones with data.val_files or data.test_file"});
  request.table = word;
}

// True for a directory that may have images: for data, a word may also be the name of a data set.
bool is_image_directory(const Request& request, const std::filesystem::path& word, const Registry& registry) {
  std::error_code ignored;
  return std::filesystem::is_directory(word, ignored) &&
         !std::filesystem::exists(word / "config.toml", ignored) &&
         (request.command != "data" || !registry.data_modules.has(word.string()));
}

void take_images(Request& request, const std::filesystem::path& word) {
  if (!request.images.empty() || !request.table.empty())
    throw ConfigError(
        {.place = "kindling " + request.command,
         .found = (request.table.empty() ? "two directories, " + request.images.string() + " and "
                                         : "a table, " + request.table.string() + ", and a directory, ") +
                  word.string(),
         .wanted = "one of them",
         .remedy = "name the directory for validation with data.val_root"});
  request.images = word;
}

}  // namespace

void move_config_words(Request& request, const Registry& registry) {
  if (is_image_directory(request, request.table, registry))
    take_images(request, std::exchange(request.table, {}));
  std::erase_if(request.config_words, [&](const std::filesystem::path& word) {
    const bool is_image = is_image_directory(request, word, registry);
    if (is_image)
      take_images(request, word);
    else if (is_table(word))
      take_table(request, word);
    return is_image || is_table(word);
  });
  const auto derive = [&](const char* key, const std::filesystem::path& value) {
    if (value.empty()) return;
    request.overrides.insert(request.overrides.begin(), std::string(key) + "=" + config::toml_text(value));
    ++request.num_derived;
  };
  derive("data.file", request.table);
  derive("data.root", request.images);
  for (const std::filesystem::path& word : request.config_words) {
    // For data it may be the name of a data set, next to a folder of that name.
    if (std::error_code ignored; request.command != "data" && std::filesystem::is_directory(word, ignored))
      throw ConfigError({.place = "kindling " + request.command,
                         .found = word.string() + " is a folder",
                         .wanted = "a config file",
                         .remedy = "to resume a run: kindling fit --resume " + shell_word(word.string())});
  }
  request.configs.insert(request.configs.begin(), request.config_words.begin(), request.config_words.end());
  request.config_words.clear();
  take_file_to_predict(request);
  if (std::filesystem::path(request.evaluation.run).extension() != ".toml") return;
  request.configs.insert(request.configs.begin(), request.evaluation.run);
  request.evaluation.run.clear();
}

}  // namespace kindling
