#include "runs/config_differences.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::array<std::string_view, 3> kPlaceKeys{"name", "run.dir", "checkpoint.resume"};

// Removes the line at the beginning of the text and returns it.
std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

// Returns a value without the comment after it.
std::string_view without_comment(std::string_view value) {
  char quote = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    if (quote == '"' && value[i] == '\\')
      ++i;
    else if (quote != 0)
      quote = value[i] == quote ? '\0' : quote;
    else if (value[i] == '"' || value[i] == '\'')
      quote = value[i];
    else if (value[i] == '#')
      value = value.substr(0, i);
  }
  const std::size_t last = value.find_last_not_of(" \t\r");
  return last == std::string_view::npos ? std::string_view{} : value.substr(0, last + 1);
}

}  // namespace

std::string shown_value(const std::string& toml) {
  const bool is_string = toml.size() >= 2 && toml.front() == '"' && toml.back() == '"' &&
                         toml.find('\\') == std::string::npos && toml.find('"', 1) == toml.size() - 1;
  return one_line(is_string ? toml.substr(1, toml.size() - 2) : toml);
}

std::vector<ConfigDifferences::Line> ConfigDifferences::parsed(std::string_view text) {
  std::vector<Line> lines;
  std::map<std::string, int> counts;  // of the tables of an array
  std::string table;
  while (!text.empty()) {
    Line& line = lines.emplace_back(Line{.text = take_line(text)});
    const std::string_view content = line.text;
    if (content.starts_with('[')) {
      const std::size_t brackets = content.starts_with("[[") ? 2 : 1;
      const std::size_t end = std::min(content.find(']'), content.size());
      table = content.substr(brackets, std::max(end, brackets) - brackets);
      if (brackets == 2) table += "[" + std::to_string(counts[table]++) + "]";
      continue;
    }
    const std::size_t sign = content.find(" = ");
    if (content.starts_with('#') || sign == std::string_view::npos) continue;
    line.key = (table.empty() ? "" : table + ".") + std::string(content.substr(0, sign));
    line.value = without_comment(content.substr(sign + 3));
  }
  return lines;
}

// The fast case: the same lines as in the first config, apart from values. Returns false otherwise.
bool ConfigDifferences::add_similar(std::string_view text) {
  Run run;
  for (const Line& first : first_) {
    if (text.empty()) return false;
    const std::string_view line = take_line(text);
    if (line == first.text) continue;
    const std::size_t sign = line.find(" = ");
    if (first.key.empty() || sign == std::string_view::npos ||
        line.substr(0, sign + 3) != first.text.substr(0, sign + 3))
      return false;
    if (std::string value(without_comment(line.substr(sign + 3))); value != first.value)
      run.differing[first.key] = std::move(value);
  }
  if (!text.empty()) return false;
  runs_.push_back(std::move(run));
  return true;
}

void ConfigDifferences::add(std::string text) {
  if (first_.empty()) {
    first_text_ = std::move(text);
    first_ = parsed(first_text_);
    for (const Line& line : first_)
      if (!line.key.empty()) first_values_[line.key] = line.value;
    runs_.emplace_back();
    return;
  }
  if (add_similar(text)) return;
  std::map<std::string, std::string> values;
  for (Line& line : parsed(text)) {
    if (line.key.empty()) continue;
    if (!first_values_.contains(line.key) && std::ranges::find(more_keys_, line.key) == more_keys_.end())
      more_keys_.push_back(line.key);
    values[line.key] = std::move(line.value);
  }
  Run run;
  for (const auto& [key, value] : values) {
    const auto first = first_values_.find(key);
    if (first == first_values_.end() || first->second != value) run.differing[key] = value;
  }
  for (const auto& [key, value] : first_values_)
    if (!values.contains(key)) run.differing[key] = "";
  runs_.push_back(std::move(run));
}

std::vector<std::string> ConfigDifferences::keys() const {
  std::set<std::string> differing;
  for (const Run& run : runs_)
    for (const auto& [key, value] : run.differing) differing.insert(key);
  for (const std::string_view key : kPlaceKeys) differing.erase(std::string(key));
  std::vector<std::string> keys;
  const auto take = [&](const std::string& key) {
    if (differing.erase(key) > 0) keys.push_back(key);
  };
  for (const Line& line : first_) take(line.key);
  for (const std::string& key : more_keys_) take(key);
  return keys;
}

std::string ConfigDifferences::value(std::size_t run, const std::string& key) const {
  const Run& wanted = runs_.at(run);
  if (!wanted.is_known) return {};
  if (const auto found = wanted.differing.find(key); found != wanted.differing.end()) return found->second;
  const auto first = first_values_.find(key);
  return first == first_values_.end() ? "" : first->second;
}

}  // namespace kindling
