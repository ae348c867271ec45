#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/cli/registry.h"
#include "kindling/config/options.h"

namespace kindling {

// One table of a config with its keys, or the products that a name in it selects.
struct ConfigTopic {
  // A product: its name, such as adam, its description, and its options, which are keys of the same table or,
  // for metrics, callbacks, and loggers, of a table of its own.
  struct Entry {
    std::string name, doc;
    OptionSet options;
  };
  std::string table;  // "trainer"; empty for the keys at the top level
  std::string title;  // "Trainer"
  std::string description;
  OptionSet options{};  // those that exist for every entry
  std::vector<Entry> entries{};
  std::string without_entries{};  // what to say if there are none
  bool is_array = false;          // of tables: [[table]]
};

// All tables that a config may have, in the order of the reference, with default values. Owns the options.
class ConfigTopics {
 public:
  explicit ConfigTopics(const Registry& registry);
  ConfigTopics(const ConfigTopics&) = delete;
  ConfigTopics& operator=(const ConfigTopics&) = delete;

  const std::vector<ConfigTopic>& all() const noexcept { return topics_; }

 private:
  ConfigTopic& add(ConfigTopic topic) { return topics_.emplace_back(std::move(topic)); }
  template <class... Options>
  void add_options(ConfigTopic& topic);
  template <class Product>
  void add_entries(ConfigTopic& topic, const Catalog<Product>& catalog);
  void add_products(const Registry& registry);
  void add_optimization(const Registry& registry);
  void add_training();

  std::vector<ConfigTopic> topics_;
  std::vector<std::shared_ptr<void>> owned_;
};

// One key of a config, as the command line names it.
struct ConfigKey {
  std::string path;   // "optimizer.lr", "metrics.accuracy.top_k"
  std::string owner;  // the product that has the key, such as adam; empty: the key always exists
  const ConfigTopic* topic;
  const OptionRef* option;
};

// Returns the keys of all topics but those of arrays of tables, which the command line cannot set. A key of
// several products appears once for each.
std::vector<ConfigKey> config_keys(const ConfigTopics& topics);

// Returns those of one path; the key of the product that the table has by default comes first.
std::vector<ConfigKey> config_keys(const ConfigTopics& topics, std::string_view path);

// Returns the paths of config_keys without repetition, in their order.
std::vector<std::string> config_key_names(const Registry& registry);

}  // namespace kindling
