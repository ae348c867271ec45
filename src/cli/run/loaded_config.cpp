#include "cli/run/loaded_config.h"

#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/run/resume_plan.h"
#include "cli/run/weights.h"
#include "kindling/base/error.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

// A new user may type no config at all: then the errors end with an example.
std::unique_ptr<RunConfig> run_config(const ConfigDocument& document, const Registry& registry,
                                      const std::string& name, ConfigUse use, bool is_empty) {
  try {
    return std::make_unique<RunConfig>(document, registry, name, use);
  } catch (const ConfigError& error) {
    if (!is_empty) throw;
    throw ConfigError(
        {.found = std::string(error.what()) +
                  "\nfor example: kindling fit configs/digits.toml, or kindling fit model.name=mlp "
                  "data.name=digits trainer.max_epochs=3"});
  }
}

// Throws ConfigError with the errors of all files.
std::vector<ConfigDocument> load_all(const std::vector<std::filesystem::path>& files) {
  std::vector<ConfigDocument> documents;
  std::vector<std::string> errors;
  for (const auto& file : files) try {
      documents.push_back(ConfigDocument::load(file));
    } catch (const ConfigError& error) {
      errors.emplace_back(error.what());
    }
  if (!errors.empty()) throw ConfigError({.found = joined(errors, "\n")});
  return documents;
}

// Whether the weights that a config starts from, or that are evaluated, are of a model with scaled targets;
// nothing without such weights, or if they cannot be read, which is reported later.
std::optional<bool> has_target_scale(const Request& request, const ConfigDocument& document) try {
  ConfigReader reader(document);
  const std::string weights =
      request.weights.empty() ? reader.read_name("model.init_weights").value_or("") : request.weights;
  if (weights.empty()) return std::nullopt;
  const std::vector<std::string> names =
      names_in(find_weights(weights).file, reader.read_name("model.init_key").value_or(""));
  return std::ranges::find(names, "target_mean") != names.end();
} catch (const Error&) {
  return std::nullopt;
}

}  // namespace

void print_valid(const LoadedConfig& loaded) {
  std::cout << loaded.description << ": no errors, nothing was run\n";
}

LoadedConfig load_config(const Request& request, const Registry& registry, ConfigUse use) {
  std::vector<std::filesystem::path> files = request.configs;
  if (!request.resume.empty()) files.insert(files.begin(), run_of(request.resume) / "config.toml");
  LoadedConfig loaded;
  for (ConfigDocument& document : load_all(files)) loaded.document.merge(std::move(document));
  for (const auto& assignment : request.overrides) loaded.document.set(assignment);
  if (use != ConfigUse::data && request.resume.empty())
    loaded.chosen = choose_keys(loaded.document, registry, has_target_scale(request, loaded.document));
  const std::string stem = files.empty() ? "unnamed" : files.back().stem().string();
  const bool is_empty = files.empty() && request.overrides.empty();
  loaded.config = run_config(loaded.document, registry, stem, use, is_empty);
  const std::size_t count = request.overrides.size();
  const auto name_of = [](const std::filesystem::path& file) { return file.filename().string(); };
  loaded.description = files.empty() ? "no file" : joined(files, ", ", name_of);
  if (count > 0)
    loaded.description += " + " + std::to_string(count) + (count == 1 ? " override" : " overrides");
  loaded.is_query = request.check || !request.print_config.empty();
  if (request.print_config == "all")
    std::cout << loaded.config->text_with_optional_tables(registry);
  else if (!request.print_config.empty())
    std::cout << loaded.config->text();
  else if (request.check && use != ConfigUse::fit)
    print_valid(loaded);
  return loaded;
}

}  // namespace kindling
