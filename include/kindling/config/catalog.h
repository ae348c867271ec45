#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"
#include "kindling/config/options.h"

namespace kindling {

// One product whose options are not set yet. Copies share the options.
template <class Product>
struct Maker {
  std::function<OptionSet()> options;  // to be read into; they live as long as the maker or a copy of it
  std::function<Product()> make;       // uses the current options
};

// The products that a config can name ("mlp", "lenet"), each with its options. `Product` is the type to
// create: std::shared_ptr<Module>, a function. Register all products before use; several threads may then
// read the catalog.
template <class Product>
class Catalog {
 public:
  // `kind` is the word for a product in messages: "model".
  explicit Catalog(std::string kind) : kind_(std::move(kind)) {}

  // Registers a product; factory(options) creates it. Throws ConfigError if the name is taken.
  template <class Options, class Factory>
  void add(std::string name, std::string doc, Options defaults, Factory factory) {
    require_fields<Options>();
    auto new_maker = [defaults = std::move(defaults), factory = std::move(factory)] {
      const auto options = std::make_shared<Options>(defaults);
      return Maker<Product>{.options = [options] { return OptionSet::of(*options); },
                            .make = [options, factory]() -> Product { return factory(*options); }};
    };
    const auto [entry, added] = entries_.try_emplace(name, Entry{std::move(doc), std::move(new_maker)});
    if (!added) throw ConfigError({.place = kind_ + " '" + name + "'", .found = "the name is added twice"});
  }

  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  // Returns the names in alphabetical order.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }

  // Both throw ConfigError, with the nearest name and all names, if there is no such product.
  const std::string& doc(std::string_view name) const { return at(name).doc; }
  Maker<Product> maker(std::string_view name) const { return at(name).new_maker(); }

 private:
  struct Entry {
    std::string doc;
    std::function<Maker<Product>()> new_maker;
  };

  const Entry& at(std::string_view name) const {
    const auto entry = entries_.find(name);
    if (entry != entries_.end()) return entry->second;
    const std::vector<std::string> known = names();
    const std::string guess = nearest(name, known);
    throw ConfigError({.place = kind_ + " '" + std::string(name) + "'",
                       .found = "there is no " + kind_ + " of this name",
                       .wanted = known.empty() ? "" : "one of " + list_names(known),
                       .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
  }

  std::string kind_;
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace kindling
