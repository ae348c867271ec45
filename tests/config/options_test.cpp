#include "kindling/config/options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kindling/base/error.h"

namespace kindling {
namespace {

struct CheckedOptions {
  std::vector<std::int64_t> hidden{256};
  double lr = 1e-3;
  std::string mode = "min";
  std::optional<double> clip{};
  double patience = 1;

  static constexpr auto fields = kindling::fields(
      kindling::field("hidden", &CheckedOptions::hidden, {.doc = "widths of the hidden layers", .min = 1}),
      kindling::field("lr", &CheckedOptions::lr,
                      {.min = 0, .max = 1, .min_excluded = true, .max_excluded = true}),
      kindling::field("mode", &CheckedOptions::mode, {.choices = "min|max"}),
      kindling::field("clip", &CheckedOptions::clip, {.min = 0}),
      kindling::field("patience", &CheckedOptions::patience, {.infinity_allowed = true}));
};

struct BatchSizeOptions {
  std::int64_t batch_size = 64;
  static constexpr auto fields =
      kindling::fields(kindling::field("batch_size", &BatchSizeOptions::batch_size, {.min = 1}));
};

std::string validation_error(const CheckedOptions& options) {
  try {
    validate(options, "Net");
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Options, StayAnAggregate) {
  const CheckedOptions options{.lr = 0.5};
  EXPECT_EQ(options.lr, 0.5);
  EXPECT_EQ(options.hidden, std::vector<std::int64_t>{256});
}

TEST(OptionSet, PointsIntoTheObjectInTheOrderOfTheFieldList) {
  CheckedOptions options;
  const OptionSet set = OptionSet::of(options);
  ASSERT_EQ(set.refs().size(), 5U);
  EXPECT_EQ(set.refs()[1].name, "lr");
  EXPECT_EQ(std::get<double*>(set.refs()[1].value), &options.lr);
  EXPECT_STREQ(set.refs()[0].notes.doc, "widths of the hidden layers");
}

struct LongFields;
struct LongOptions {
  double lr = 1e-3;
  using Fields = LongFields;
};
struct LongFields {
  static constexpr auto list = kindling::fields(kindling::field("lr", &LongOptions::lr, {.min = 0}));
};

TEST(OptionSet, ReadsAFieldListOfASeparateStruct) {
  LongOptions options{.lr = 0.5};
  const OptionSet set = OptionSet::of(options);
  ASSERT_EQ(set.refs().size(), 1U);
  EXPECT_EQ(set.refs()[0].name, "lr");
  EXPECT_EQ(std::get<double*>(set.refs()[0].value), &options.lr);
}

TEST(OptionPolicies, AreUndecidedUnlessTheFieldDecides) {
  CheckedOptions options;
  const OptionSet set = OptionSet::of(options);
  for (const OptionRef& option : set.refs()) EXPECT_FALSE(option.notes.policy.is_decided()) << option.name;
  using Policy = kindling::OptionPolicy;
  EXPECT_FALSE((Policy{.on_resume = Policy::OnResume::fixed}.is_decided()));
  EXPECT_TRUE((
      Policy{Policy::OnResume::fixed, Policy::AcrossRanks::may_differ, Policy::InTrials::kept}.is_decided()));
}

TEST(CountOrFraction, HasItsFormerNames) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  const CountOrFraction half = 0.5;
  EXPECT_TRUE(half.is_share());
#pragma GCC diagnostic pop
  EXPECT_TRUE(half.is_fraction());
  EXPECT_EQ(half.of(30), 15);
}

TEST(OptionSet, JoinsStructsIntoOneTable) {
  CheckedOptions plain;
  BatchSizeOptions shared;
  OptionSet set = OptionSet::of(shared);
  set.append(OptionSet::of(plain));
  EXPECT_EQ(set.refs().size(), 6U);
  EXPECT_EQ(set.refs()[0].name, "batch_size");
}

TEST(OptionSet, RefusesANameTwice) {
  BatchSizeOptions first;
  BatchSizeOptions second;
  OptionSet set = OptionSet::of(first);
  EXPECT_THROW(set.append(OptionSet::of(second)), ConfigError);
}

TEST(OptionSet, IsEmptyForNoOptions) {
  NoOptions none;
  EXPECT_TRUE(OptionSet::of(none).refs().empty());
}

TEST(Validate, PassesDefaultsAndBounds) {
  EXPECT_EQ(validation_error({}), "");
  EXPECT_EQ(validation_error({.hidden = {1}, .mode = "max", .clip = 0.0}), "");
  EXPECT_EQ(validation_error({.hidden = {}}), "");
}

TEST(Validate, NamesTheOptionWithFoundAndExpected) {
  EXPECT_EQ(validation_error({.hidden = {4, 0}}), "Net: hidden[1] is 0; expected: an integer >= 1");
  EXPECT_EQ(validation_error({.lr = 0}), "Net: lr is 0.0; expected: a number > 0 and < 1");
  EXPECT_EQ(validation_error({.lr = 1}), "Net: lr is 1.0; expected: a number > 0 and < 1");
  EXPECT_EQ(validation_error({.mode = "mean"}), "Net: mode is \"mean\"; expected: one of \"min\", \"max\"");
  EXPECT_EQ(validation_error({.clip = -0.5}), "Net: clip is -0.5; expected: a number >= 0");
}

TEST(Validate, RequiresFiniteNumbersUnlessAllowed) {
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(validation_error({.clip = infinity}), "Net: clip is inf; expected: a finite number");
  EXPECT_EQ(validation_error({.patience = infinity}), "");
  EXPECT_EQ(validation_error({.patience = -infinity}), "");
  EXPECT_EQ(validation_error({.patience = std::nan("")}), "Net: patience is nan; expected: a number");
}

}  // namespace
}  // namespace kindling
