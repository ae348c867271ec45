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

// Holds the options of one product until it is made.
template <class Product>
class Maker {
 public:
  virtual ~Maker() = default;
  // Points into the maker.
  virtual OptionSet options() = 0;
  virtual std::shared_ptr<Product> make() const = 0;
};

// The products that a config can name ("mlp", "lenet"), each with its options. Filled explicitly, before use;
// reading it from several threads is fine.
template <class Product>
class Catalog {
 public:
  // `kind` is what messages call a product: "model".
  explicit Catalog(std::string kind) : kind_(std::move(kind)) {}

  // A product made by std::make_shared<T>(options).
  template <class T, OptionStruct Options>
  void add(std::string name, std::string doc) {
    add(std::move(name), std::move(doc), Options{},
        [](const Options& options) { return std::make_shared<T>(options); });
  }

  // A product made by factory(options), which returns a std::shared_ptr<Product>.
  // Both throw ConfigError when the name is taken.
  template <OptionStruct Options, class Factory>
  void add(std::string name, std::string doc, Options defaults, Factory factory) {
    auto new_maker = [defaults = std::move(defaults), factory = std::move(factory)] {
      return std::make_unique<MakerOf<Options, Factory>>(defaults, factory);
    };
    const auto [entry, added] = entries_.try_emplace(name, Entry{std::move(doc), std::move(new_maker)});
    if (!added) throw ConfigError({.place = kind_ + " '" + name + "'", .found = "the name is added twice"});
  }

  bool has(std::string_view name) const { return entries_.find(name) != entries_.end(); }

  // In alphabetical order.
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& [name, entry] : entries_) all.push_back(name);
    return all;
  }

  // Both throw ConfigError, with the nearest name and all names, when there is no such product.
  const std::string& doc(std::string_view name) const { return at(name).doc; }
  std::unique_ptr<Maker<Product>> maker(std::string_view name) const { return at(name).new_maker(); }

 private:
  template <class Options, class Factory>
  class MakerOf : public Maker<Product> {
   public:
    MakerOf(Options options, Factory factory) : options_(std::move(options)), factory_(std::move(factory)) {}
    OptionSet options() override { return OptionSet::of(options_); }
    std::shared_ptr<Product> make() const override { return factory_(options_); }

   private:
    Options options_;
    Factory factory_;
  };

  struct Entry {
    std::string doc;
    std::function<std::unique_ptr<Maker<Product>>()> new_maker;
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
