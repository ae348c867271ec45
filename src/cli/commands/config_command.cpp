#include <algorithm>
#include <cstddef>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "cli/check/fit_check.h"
#include "cli/commands/commands.h"
#include "cli/run/loaded_config.h"
#include "cli/run/process_settings.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "kindling/data/table_data.h"
#include "kindling/formats/table_schema.h"

namespace kindling {
namespace {

// Collects the warnings during its lifetime, each once.
class CollectedWarnings {
 public:
  CollectedWarnings() {
    set_log_observer([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::warning && std::ranges::find(texts_, text) == texts_.end())
        texts_.push_back(text);
    });
  }
  ~CollectedWarnings() { set_log_observer({}); }
  CollectedWarnings(const CollectedWarnings&) = delete;
  CollectedWarnings& operator=(const CollectedWarnings&) = delete;
  const std::vector<std::string>& texts() const { return texts_; }

 private:
  std::vector<std::string> texts_{};
};

// Breaks text at blanks into lines that begin with "# ".
std::string comment(const std::string& text) {
  constexpr std::size_t kWidth = 110;
  std::string lines, line = "#";
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
    if (line.size() > 1 && display_width(line) + 1 + display_width(word) > kWidth) {
      lines += line + "\n";
      line = "#  ";
    }
    line += " " + std::string(word);
  }
  return lines + line + "\n";
}

// "rooms (numbers), city (3 categories)"
std::string columns_text(const TableSchema& schema) {
  constexpr std::size_t kMostColumns = 40;
  std::vector<std::string> columns;
  for (const TableFeature& feature : schema.features) {
    if (columns.size() == kMostColumns) {
      columns.push_back(counted(schema.features.size() - kMostColumns, "more column"));
      break;
    }
    columns.push_back(one_line(feature.name) +
                      (feature.kind == ColumnKind::number
                           ? " (numbers)"
                           : " (" + std::to_string(feature.categories.size()) +
                                 (feature.categories.size() == 1 ? " category)" : " categories)")));
  }
  return joined(columns, ", ");
}

// The keys to write, by table, with the reason for each; empty: it was given.
class ConfigWriter {
 public:
  ConfigWriter(const LoadedConfig& loaded, const Request& request) : config_(*loaded.config) {
    values_ = config_.values();
    for (const std::string& assignment : request.overrides) {
      std::string key = assignment.substr(0, assignment.find('='));
      key.resize(key.find_last_not_of(" \t") + 1);
      reasons_[key] = "";
    }
    for (const auto& [key, reason] : reasons_)
      if (!values_.contains(key))
        throw ConfigError({.place = "kindling config",
                           .found = "'" + key + "' is not a single key",
                           .wanted = "keys such as data.delimiter",
                           .remedy = "add it to the config that this command writes"});
    for (const ChosenKey& chosen : loaded.chosen) {
      reasons_[chosen.key] = chosen.reason;
      values_[chosen.key] = chosen.value;
    }
  }

  // `inputs`: what the model reads, in [data]; empty: what the data say.
  void write(const std::string& inputs) const {
    for (const bool is_top : {true, false})
      for (const ConfigSection& section : config_.sections)
        if (section.enabled && section.table.empty() == is_top) write(section, inputs);
  }

 private:
  void write(const ConfigSection& section, const std::string& inputs) const {
    std::vector<std::pair<std::string, std::string>> lines;  // with their reasons
    std::size_t width = 0;
    for (const OptionRef& option : section.options.refs()) {
      const std::string key = section.table.empty() ? option.name : section.table + "." + option.name;
      const auto found = reasons_.find(key);
      if (found == reasons_.end()) continue;
      lines.emplace_back(option.name + " = " + values_.at(key), found->second);
      constexpr std::size_t kWidest = 40;
      if (display_width(lines.back().first) <= kWidest)
        width = std::max(width, display_width(lines.back().first));
    }
    if (lines.empty()) return;
    std::cout << "\n";
    if (!section.table.empty()) std::cout << "[" << section.table << "]\n";
    for (const auto& [line, reason] : lines)
      std::cout << (reason.empty() ? line : padded(line, width) + "  # " + one_line(reason)) << "\n";
    if (section.table == "data" && !inputs.empty()) std::cout << comment(inputs);
  }

  const RunConfig& config_;
  std::map<std::string, std::string> values_{}, reasons_{};
};

// The last name in the path of the table or directory.
std::string data_name(const Request& request) {
  const std::filesystem::path& path = request.table.empty() ? request.images : request.table;
  return (path / "").parent_path().filename().string();
}

}  // namespace

int config_command(const CommandContext& context) {
  const CollectedWarnings warnings;
  const Request request = with_column_to_predict(context.request, TableGuess::column_and_reading);
  const LoadedConfig loaded = load_config(request, context.registry);
  apply(loaded.config->process);
  const CheckedFit checked = check_start(loaded);
  for (const std::string& warning : checked.warnings) log_warning(warning);
  const auto* const table = dynamic_cast<const TableData*>(checked.data.get());
  if (table == nullptr && request.images.empty())
    throw ConfigError({.place = "data.name", .found = "the data is not a table", .wanted = "\"csv\""});
  const ConfigWriter writer(loaded, request);
  std::cout << comment("A config for " + one_line(data_name(request)) +
                       ". Save it, such as in job.toml, and start it with: kindling fit job.toml")
            << comment("Help on its keys: kindling help data, kindling help " +
                       unquoted(loaded.config->values().at("model.name")));
  if (!warnings.texts().empty()) std::cout << "#\n# Warnings:\n";
  for (const std::string& warning : warnings.texts()) std::cout << comment("- " + one_line(warning));
  const std::string columns = table == nullptr ? "" : columns_text(table->schema());
  writer.write(columns.empty() ? "" : "The model reads: " + columns + ".");
  return 0;
}

}  // namespace kindling
