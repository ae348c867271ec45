#include "kindling/config/catalog.h"

#include <gtest/gtest.h>

#include "kindling/config/document.h"
#include "kindling/config/reader.h"

namespace kindling {
namespace {

struct SampleShape {
  virtual ~SampleShape() = default;
  virtual double area() const = 0;
};

struct SampleSquareOptions {
  double side = 1;
  static constexpr auto fields =
      kindling::fields(kindling::field("side", &SampleSquareOptions::side, {.min = 0}));
};

struct SampleSquare : SampleShape {
  explicit SampleSquare(const SampleSquareOptions& options) : side(options.side) {}
  double area() const override { return side * side; }
  double side;
};

Catalog<std::shared_ptr<SampleShape>> shape_catalog() {
  Catalog<std::shared_ptr<SampleShape>> catalog("shape");
  const auto make = [](const SampleSquareOptions& options) {
    return std::make_shared<SampleSquare>(options);
  };
  catalog.add("square", "four equal sides", SampleSquareOptions{}, make);
  catalog.add("unit_square", "side 1", NoOptions{},
              [](const NoOptions&) { return std::make_shared<SampleSquare>(SampleSquareOptions{}); });
  catalog.add("big_square", "side 10 by default", SampleSquareOptions{.side = 10}, make);
  return catalog;
}

TEST(Catalog, ListsWhatWasAdded) {
  const Catalog<std::shared_ptr<SampleShape>> catalog = shape_catalog();
  EXPECT_EQ(catalog.names(), (std::vector<std::string>{"big_square", "square", "unit_square"}));
  EXPECT_EQ(catalog.doc("square"), "four equal sides");
  EXPECT_TRUE(catalog.has("square"));
  EXPECT_FALSE(catalog.has("circle"));
}

TEST(Catalog, MakesProductsFromOptionsReadFromAConfig) {
  const auto maker = shape_catalog().maker("square");
  const ConfigDocument document = ConfigDocument::parse("[shape]\nside = 3", "a.toml", "");
  ConfigReader reader(document);
  reader.read("shape", maker.options());
  reader.finish();
  EXPECT_EQ(maker.make()->area(), 9.0);
}

TEST(Catalog, KeepsDefaultsPerEntryAndPerMaker) {
  const Catalog<std::shared_ptr<SampleShape>> catalog = shape_catalog();
  const auto changed = catalog.maker("big_square");
  *std::get<double*>(changed.options().refs()[0].value) = 2;
  EXPECT_EQ(changed.make()->area(), 4.0);
  EXPECT_EQ(catalog.maker("big_square").make()->area(), 100.0);
  EXPECT_EQ(catalog.maker("unit_square").make()->area(), 1.0);
}

TEST(Catalog, MakesValuesToo) {
  Catalog<std::function<double(double)>> catalog("function");
  catalog.add("scale", "times side", SampleSquareOptions{.side = 3}, [](const SampleSquareOptions& options) {
    return [side = options.side](double x) { return side * x; };
  });
  EXPECT_EQ(catalog.maker("scale").make()(2), 6.0);
}

TEST(Catalog, RefusesANameTwice) {
  Catalog<std::shared_ptr<SampleShape>> catalog = shape_catalog();
  EXPECT_THROW(catalog.add("square", "again", NoOptions{}, [](NoOptions) { return nullptr; }), ConfigError);
  EXPECT_EQ(catalog.doc("square"), "four equal sides");
}

TEST(Catalog, NamesTheNearestAndAllForAnUnknownName) {
  try {
    shape_catalog().maker("sqare");
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "shape 'sqare': there is no shape of this name; expected: one of big_square, square, unit_square; "
        "did you mean 'square'?");
  }
}

}  // namespace
}  // namespace kindling
