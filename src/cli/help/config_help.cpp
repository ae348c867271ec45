#include <algorithm>
#include <string_view>
#include <vector>

#include "base/joined.h"
#include "cli/config/config_topics.h"
#include "cli/config/other_names.h"
#include "cli/help/help.h"
#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"
#include "kindling/config/printer.h"

namespace kindling {
namespace {

std::string last_part(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// The reference is Markdown.
std::string plain_text(std::string text) {
  std::erase(text, '`');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// "docs/reference/configuration.md#early-stopping"
std::string page_of(const ConfigTopic& topic) {
  std::string anchor = lower_case(topic.title);
  std::replace(anchor.begin(), anchor.end(), ' ', '-');
  return "docs/reference/configuration.md#" + anchor;
}

// "metrics.accuracy" of metrics.accuracy.threshold, "trainer" of trainer.precision
std::string table_of(const ConfigKey& key) {
  const std::size_t dot = key.path.rfind('.');
  return dot == std::string::npos ? "" : key.path.substr(0, dot);
}

std::string row(const std::string& name, const std::string& text) { return padded(name, 9) + text + "\n"; }

std::string default_of(const OptionText& text) {
  return text.default_value.empty() ? "absent" : text.default_value;
}

// "lr  number >= 0, default 0.001: learning rate"
std::string key_rows(const OptionSet& options) {
  std::size_t width = 0;
  for (const OptionRef& option : options.refs()) width = std::max(width, option.name.size());
  std::string rows;
  for (const OptionRef& option : options.refs()) {
    const OptionText text = describe(option);
    rows += "  " + padded(option.name, width + 2) + text.description + "\n" + std::string(width + 4, ' ') +
            text.type + "; default " + default_of(text) + "\n";
  }
  return rows;
}

std::string key_help(const ConfigKey& key) {
  const OptionText text = describe(*key.option);
  const std::string table = table_of(key), example = text.example.empty() ? "…" : text.example;
  std::string help = key.path + (key.owner.empty() ? "" : " (of " + key.owner + ")") + "\n";
  help += "  " + text.description + "\n\n";
  help += row("type", text.type) + row("default", default_of(text));
  help += row("example", (table.empty() ? "" : "[" + table + "] ") + last_part(key.path) + " = " + example);
  if (text.may_change_on_resume) help += row("resume", "may change when a run is resumed");
  return help + row("page", page_of(*key.topic));
}

std::string entry_help(const ConfigTopic& topic, const ConfigTopic::Entry& entry) {
  std::string help = entry.name + ": " + (entry.doc.empty() ? topic.title : entry.doc) + "\n\n";
  const bool is_metric = topic.table == "metrics";
  if (is_metric)
    help += "[model]\nmetrics = [\"" + entry.name + "\"]\n";
  else if (topic.table == "callbacks" || topic.table == "loggers")
    help += "[" + topic.table + "." + entry.name + "]\n";
  else if (topic.is_array)
    help += "[[" + topic.table + "]]\nname = \"" + entry.name + "\"\n";
  else
    help += "[" + topic.table + "]\nname = \"" + entry.name + "\"\n";
  if (!entry.options.refs().empty()) help += "\n" + key_rows(entry.options);
  return help + "\n" + row("page", page_of(topic));
}

std::string topic_help(const ConfigTopic& topic) {
  std::string help = plain_text(topic.description) + "\n";
  if (!topic.options.refs().empty()) help += "\n" + key_rows(topic.options);
  if (topic.entries.empty() && !topic.without_entries.empty()) help += "\n" + topic.without_entries + "\n";
  if (!topic.entries.empty()) help += "\nNames:\n";
  std::size_t width = 0;
  for (const ConfigTopic::Entry& entry : topic.entries) width = std::max(width, entry.name.size());
  for (const ConfigTopic::Entry& entry : topic.entries)
    help += "  " + padded(entry.name, width + 2) + entry.doc + "\n";
  if (!topic.entries.empty())
    help += "\nkindling help " + topic.entries.front().name + " explains one of them.\n";
  return help + "\n" + row("page", page_of(topic));
}

// "model" for "models", "data" for "datasets"
std::string table_for(const std::string& word) {
  constexpr std::pair<std::string_view, std::string_view> kTables[] = {
      {"models", "model"},
      {"datasets", "data"},
      {"dataset", "data"},
      {"optimizers", "optimizer"},
      {"schedules", "schedule"},
      {"scheduler", "schedule"},
      {"transforms", "data.train_transforms"},
      {"transform", "data.train_transforms"},
      {"train_transforms", "data.train_transforms"},
      {"val_transforms", "data.train_transforms"},
      {"data.val_transforms", "data.train_transforms"},
      {"metric", "metrics"},
      {"callback", "callbacks"},
      {"logger", "loggers"},
      {"checkpoints", "checkpoint"}};
  for (const auto& [other, table] : kTables)
    if (word == other) return std::string(table);
  return word;
}

[[noreturn]] void refuse(const std::string& topic, const ConfigTopics& topics,
                         const std::vector<ConfigKey>& keys) {
  std::vector<std::string> names;
  for (const ConfigTopic& each : topics.all()) {
    if (!each.table.empty()) names.push_back(each.table);
    for (const ConfigTopic::Entry& entry : each.entries) names.push_back(entry.name);
  }
  for (const ConfigKey& key : keys) names.push_back(key.path);
  std::string guess = key_for_other_name(last_part(topic));
  if (guess.empty()) guess = nearest(topic, names);
  std::vector<std::string> parts;
  for (const ConfigKey& key : keys) parts.push_back(last_part(key.path));
  if (guess.empty()) guess = nearest(last_part(topic), parts);
  throw ConfigError({.place = "kindling help",
                     .found = "there is no command, key, table, or name '" + topic + "'",
                     .remedy = guess.empty() ? "`kindling help` lists the commands, `kindling list` the names"
                                             : "did you mean '" + guess + "'?"});
}

}  // namespace

std::string config_help(const Registry& registry, const std::string& topic) {
  const ConfigTopics topics(registry);
  for (const ConfigTopic& each : topics.all())
    if (!each.table.empty() && each.table == table_for(topic)) return topic_help(each);
  std::string help;
  const auto add = [&](const std::string& text) { help += (help.empty() ? "" : "\n") + text; };
  const std::vector<ConfigKey> keys = config_keys(topics);
  for (const ConfigKey& key : config_keys(topics, topic)) add(key_help(key));
  if (!help.empty()) return help;
  for (const ConfigTopic& each : topics.all())
    for (const ConfigTopic::Entry& entry : each.entries)
      if (entry.name == topic) add(entry_help(each, entry));
  for (const ConfigKey& key : keys)
    if (last_part(key.path) == topic) add(key_help(key));
  if (help.empty()) refuse(topic, topics, keys);
  return help;
}

}  // namespace kindling
