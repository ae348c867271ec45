#include "kindling/config/document.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "config/config_tree.h"
#include "config/override_parser.h"
#include "config/toml_parser.h"
#include "kindling/base/error.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

void merge_tables(ConfigTable& into, ConfigTable from) {
  for (auto& [key, later] : from) {
    std::unique_ptr<ConfigNode>& present = into[key];
    auto* into_table = present ? std::get_if<ConfigTable>(&present->value) : nullptr;
    auto* from_table = std::get_if<ConfigTable>(&later->value);
    if (into_table != nullptr && from_table != nullptr) {
      merge_tables(*into_table, std::move(*from_table));
    } else {
      present = std::move(later);
    }
  }
}

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw ConfigError({.place = file.string(), .found = "this is a folder", .wanted = "a TOML file"});
  }
  std::ifstream stream(file, std::ios::binary);
  if (!stream) {
    const char* reason = std::strerror(errno);
    throw ConfigError({.place = file.string(), .found = std::string("the file cannot be opened: ") + reason});
  }
  std::string text(ConfigDocument::kMaxBytes + 1, '\0');  // one more, to see what is too large
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (stream.bad()) throw ConfigError({.place = file.string(), .found = "the file cannot be read"});
  text.resize(static_cast<std::size_t>(stream.gcount()));
  return text;
}

}  // namespace

ConfigDocument::ConfigDocument() : tree_(std::make_unique<ConfigTree>()) {}
ConfigDocument::~ConfigDocument() = default;
ConfigDocument::ConfigDocument(ConfigDocument&& other) noexcept = default;
ConfigDocument& ConfigDocument::operator=(ConfigDocument&& other) noexcept = default;

ConfigDocument ConfigDocument::load(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  return parse(text, file.string(), std::filesystem::absolute(file).parent_path());
}

ConfigDocument ConfigDocument::parse(std::string_view text, std::string_view name,
                                     std::filesystem::path base_dir) {
  const auto source = std::make_shared<const ConfigSource>(
      ConfigSource{one_line(name), std::move(base_dir), std::string(text)});
  ConfigDocument document;
  document.tree_->root = config::parse_toml(*source);
  document.tree_->sources.push_back(source);
  return document;
}

void ConfigDocument::merge(ConfigDocument later) {
  merge_tables(tree_->root, std::move(later.tree_->root));
  std::move(later.tree_->sources.begin(), later.tree_->sources.end(), std::back_inserter(tree_->sources));
}

void ConfigDocument::set(std::string_view assignment) {
  const std::string text(assignment);
  const auto source = std::make_shared<const ConfigSource>(
      ConfigSource{"command line: " + one_line(text), std::filesystem::current_path()});
  merge_tables(tree_->root, config::parse_override(text, *source));
  tree_->sources.push_back(source);
}

}  // namespace kindling
