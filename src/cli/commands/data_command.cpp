#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/data/data_check.h"
#include "cli/data/data_fetch.h"
#include "cli/data/data_show.h"
#include "cli/run/loaded_config.h"

namespace kindling {
namespace {

// A word that is not a file is the name of a data set.
Request with_name_of_data(Request request) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& word : request.configs)
    if (std::filesystem::is_regular_file(word) || !word.extension().empty())
      files.push_back(word);
    else
      request.overrides.insert(request.overrides.begin(), "data.name=" + word.string());
  request.configs = std::move(files);
  return request;
}

}  // namespace

int data_command(const CommandContext& context) {
  const Request request = with_name_of_data(context.request);
  if (request.data.what == "fetch" && context.request.configs.size() == 1 && request.configs.empty() &&
      !context.registry.data_modules.has(context.request.configs[0].string()))
    refuse_fetch(context.request.configs[0].string());
  const LoadedConfig loaded = load_config(request, context.registry, ConfigUse::data);
  if (request.data.what == "fetch") return fetch_data(*loaded.config, request.json);
  if (request.data.what == "show") return show_data(*loaded.config, request);
  return check_data(*loaded.config->make_data(), request.json);
}

}  // namespace kindling
