#include "cli/run/loaded_config.h"

#include <iostream>

#include "base/joined.h"
#include "cli/run/resume_plan.h"

namespace kindling {

LoadedConfig load_config(const Request& request, const Registry& registry, ConfigUse use) {
  std::vector<std::filesystem::path> files = request.configs;
  if (!request.resume.empty()) files.insert(files.begin(), run_of(request.resume) / "config.toml");
  ConfigDocument document;
  for (const auto& file : files) document.merge(ConfigDocument::load(file));
  for (const auto& assignment : request.overrides) document.set(assignment);

  LoadedConfig loaded;
  const std::string stem = files.empty() ? "unnamed" : files.back().stem().string();
  loaded.config = std::make_unique<RunConfig>(document, registry, stem, use);
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
  else if (request.check)
    std::cout << loaded.description << ": no errors, nothing was run\n";
  return loaded;
}

}  // namespace kindling
