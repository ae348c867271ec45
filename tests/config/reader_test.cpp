#include "kindling/config/reader.h"

#include <gtest/gtest.h>

#include <functional>

#include "kindling/base/error.h"

namespace kindling {
namespace {

struct SampleTrainerOptions {
  std::int64_t max_epochs = 1;
  double gradient_clip_val = 0;
  std::string precision = "32-true";
  static constexpr auto fields = kindling::fields(
      kindling::field("max_epochs", &SampleTrainerOptions::max_epochs, {.min = 1}),
      kindling::field("gradient_clip_val", &SampleTrainerOptions::gradient_clip_val, {.min = 0}),
      kindling::field("precision", &SampleTrainerOptions::precision,
                      {.choices = "32-true|bf16-mixed|16-mixed"}));
};

struct SampleOptimizerOptions {
  std::string name = "adam";
  double lr = 1e-3;
  static constexpr auto fields =
      kindling::fields(kindling::field("name", &SampleOptimizerOptions::name),
                       kindling::field("lr", &SampleOptimizerOptions::lr, {.min = 0, .min_excluded = true}));
};

struct EveryTypeRead {
  bool flag = false;
  std::int64_t count = -1;
  double rate = -1;
  std::string text = "-";
  std::filesystem::path file = "-";
  std::vector<std::int64_t> counts{-1};
  std::vector<double> rates{-1};
  std::vector<std::string> texts{"-"};
  std::array<std::int64_t, 2> range{-1, -1};
  std::array<double, 2> betas{-1, -1};
  std::optional<bool> maybe_flag{};
  std::optional<std::int64_t> maybe_count{};
  std::optional<double> maybe_rate{};
  std::optional<std::string> maybe_text{};
  std::optional<std::filesystem::path> maybe_file{};
  std::optional<std::array<std::int64_t, 2>> maybe_range{};
  std::optional<std::array<double, 2>> maybe_betas{};
  bool operator==(const EveryTypeRead&) const = default;

  static constexpr auto fields = kindling::fields(
      kindling::field("flag", &EveryTypeRead::flag), kindling::field("count", &EveryTypeRead::count),
      kindling::field("rate", &EveryTypeRead::rate), kindling::field("text", &EveryTypeRead::text),
      kindling::field("file", &EveryTypeRead::file), kindling::field("counts", &EveryTypeRead::counts),
      kindling::field("rates", &EveryTypeRead::rates), kindling::field("texts", &EveryTypeRead::texts),
      kindling::field("range", &EveryTypeRead::range), kindling::field("betas", &EveryTypeRead::betas),
      kindling::field("maybe_flag", &EveryTypeRead::maybe_flag),
      kindling::field("maybe_count", &EveryTypeRead::maybe_count),
      kindling::field("maybe_rate", &EveryTypeRead::maybe_rate),
      kindling::field("maybe_text", &EveryTypeRead::maybe_text),
      kindling::field("maybe_file", &EveryTypeRead::maybe_file),
      kindling::field("maybe_range", &EveryTypeRead::maybe_range),
      kindling::field("maybe_betas", &EveryTypeRead::maybe_betas));
};

ConfigDocument mnist_toml(std::string_view text) {
  return ConfigDocument::parse(text, "mnist.toml", "/base");
}

// The error of finish() after `read` has run; empty if there is none.
std::string reading_error(std::string_view text, const std::function<void(ConfigReader&)>& read) {
  const ConfigDocument document = mnist_toml(text);
  ConfigReader reader(document);
  read(reader);
  try {
    reader.finish();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

// One key of EveryTypeRead; the message without its place and its last line.
std::string one_value(const std::string& text) {
  EveryTypeRead options;
  const std::string all =
      reading_error(text, [&](ConfigReader& reader) { reader.read("", OptionSet::of(options)); });
  const std::size_t start = all.find("error: ") + 7;
  return all.empty() ? "" : all.substr(start, all.find('\n') - start);
}

TEST(ConfigReader, ShowsAllErrorsAtOnceInTheOrderOfLines) {
  SampleTrainerOptions trainer;
  SampleOptimizerOptions optimizer;
  const std::string text = reading_error(
      "# a comment\n"
      "[trainer]\n"
      "max_epoch = 10\n"
      "\n"
      "[model]\n"
      "name = 'mlp'\n"
      "\n"
      "[optimizer]\n"
      "lr = \"1e-3\"\n",
      [&](ConfigReader& reader) {
        reader.read("optimizer", OptionSet::of(optimizer));
        reader.read("trainer", OptionSet::of(trainer));
        EXPECT_EQ(reader.read_name("model.name"), "mlp");
      });
  EXPECT_EQ(text,
            "mnist.toml:3:1: error: unknown key 'trainer.max_epoch'\n"
            "    3 | max_epoch = 10\n"
            "      | ^~~~~~~~~ did you mean 'max_epochs'?\n"
            "mnist.toml:9:6: error: 'optimizer.lr': expected a number, found the string \"1e-3\" (drop the "
            "quotes)\n"
            "2 errors, nothing was run");
  EXPECT_EQ(optimizer.lr, 1e-3);
  EXPECT_EQ(trainer.max_epochs, 1);
}

TEST(ConfigReader, KeepsDefaultsForAbsentTablesAndKeys) {
  SampleTrainerOptions trainer;
  const auto read = [&](ConfigReader& reader) {
    reader.read("trainer", OptionSet::of(trainer));
    EXPECT_EQ(reader.read_name("model.name"), std::nullopt);
    EXPECT_FALSE(reader.has("early_stopping"));
  };
  EXPECT_EQ(reading_error("", read), "");
  EXPECT_EQ(reading_error("[trainer]\ngradient_clip_val = 1", read), "");
  EXPECT_EQ(trainer.max_epochs, 1);
  EXPECT_EQ(trainer.gradient_clip_val, 1.0);
}

TEST(ConfigReader, ReadsEveryType) {
  EveryTypeRead read;
  const EveryTypeRead expected{.flag = true,
                               .count = -9223372036854775807 - 1,
                               .rate = 2,
                               .text = "a",
                               .file = "/base/f",
                               .counts = {1, 2},
                               .rates = {1, 2.5},
                               .texts = {"x", ""},
                               .range = {0, 6400},
                               .betas = {0.9, 0.999},
                               .maybe_flag = false,
                               .maybe_count = 3,
                               .maybe_rate = 0.5,
                               .maybe_text = "",
                               .maybe_file = "/base/g",
                               .maybe_range = std::array<std::int64_t, 2>{1, 2},
                               .maybe_betas = std::array<double, 2>{1, 2}};
  const std::string text = reading_error(R"(
flag = true
count = -9223372036854775808
rate = 2
text = "a"
file = "f"
counts = [1, 2]
rates = [1, 2.5]
texts = ["x", ""]
range = [0, 6400]
betas = [0.9, 0.999]
maybe_flag = false
maybe_count = 3
maybe_rate = 0.5
maybe_text = ""
maybe_file = "g"
maybe_range = [1, 2]
maybe_betas = [1, 2]
)",
                                         [&](ConfigReader& reader) { reader.read("", OptionSet::of(read)); });
  EXPECT_EQ(text, "");
  EXPECT_TRUE(read == expected);
}

TEST(ConfigReader, ReportsExpectedAndFound) {
  EXPECT_EQ(one_value("count = 10.0"), "'count': expected an integer, found the number 10.0");
  EXPECT_EQ(one_value("count = '7'"),
            "'count': expected an integer, found the string \"7\" (drop the quotes)");
  EXPECT_EQ(one_value("count = '7.5'"), "'count': expected an integer, found the string \"7.5\"");
  EXPECT_EQ(one_value("flag = 'true'"),
            "'flag': expected true or false, found the string \"true\" (drop the quotes)");
  EXPECT_EQ(one_value("flag = 1"), "'flag': expected true or false, found the integer 1");
  EXPECT_EQ(one_value("text = 1"), "'text': expected a string, found the integer 1 (put it in quotes)");
  EXPECT_EQ(one_value("file = 2024-01-02"),
            "'file': expected a path, found the date or time 2024-01-02 (put it in quotes)");
  EXPECT_EQ(one_value("rate = nan"), "'rate': expected a finite number, found nan");
  EXPECT_EQ(one_value("maybe_rate = inf"), "'maybe_rate': expected a finite number, found inf");
  EXPECT_EQ(one_value("counts = 3"), "'counts': expected an array of integers, found the integer 3");
  EXPECT_EQ(one_value("maybe_betas = [1, 'x']"),
            "'maybe_betas[1]': expected a number, found the string \"x\"");
  EXPECT_EQ(one_value("betas = [1]"), "'betas': expected an array of 2 numbers, found an array of 1 value");
  EXPECT_EQ(one_value("[text]\nx = 1"), "'text': expected a string, found a table");
  EXPECT_EQ(one_value("flag = \"" + std::string(1000, 'x') + "\""),
            "'flag': expected true or false, found a string of 1000 bytes");
  EXPECT_EQ(one_value(R"(flag = "\u001b[31m\n\u009b")"),
            R"('flag': expected true or false, found the string "\u001B[31m\n\u009B")");
}

TEST(ConfigReader, ChecksRangesAndChoices) {
  SampleTrainerOptions trainer;
  const std::string text =
      reading_error("[trainer]\nmax_epochs = 0\ngradient_clip_val = -1\nprecision = 'bf16-mixd'",
                    [&](ConfigReader& reader) { reader.read("trainer", OptionSet::of(trainer)); });
  EXPECT_EQ(text,
            "mnist.toml:2:14: error: 'trainer.max_epochs': expected an integer >= 1, found 0\n"
            "mnist.toml:3:21: error: 'trainer.gradient_clip_val': expected a number >= 0, found -1.0\n"
            "mnist.toml:4:13: error: 'trainer.precision': expected one of \"32-true\", \"bf16-mixed\", "
            "\"16-mixed\", "
            "found \"bf16-mixd\"\n"
            "    4 | precision = 'bf16-mixd'\n"
            "      |             ^~~~~~~~~~~ did you mean \"bf16-mixed\"?\n"
            "3 errors, nothing was run");
  EXPECT_EQ(trainer.precision, "32-true");
}

TEST(ConfigReader, NamesUnknownTablesOnce) {
  SampleTrainerOptions trainer;
  const std::string text =
      reading_error("[trianer]\nmax_epochs = 3\nx = 1\n[trainer.inner]\na = 1",
                    [&](ConfigReader& reader) { reader.read("trainer", OptionSet::of(trainer)); });
  EXPECT_EQ(text,
            "mnist.toml:1:2: error: unknown table 'trianer'\n"
            "    1 | [trianer]\n"
            "      |  ^~~~~~~ did you mean 'trainer'?\n"
            "mnist.toml:4:10: error: unknown table 'trainer.inner'\n"
            "    4 | [trainer.inner]\n"
            "      |          ^~~~~\n"
            "2 errors, nothing was run");
}

TEST(ConfigReader, PointsToTheTableAKeyBelongsTo) {
  SampleTrainerOptions trainer;
  const std::string text = reading_error(
      "max_epochs = 3", [&](ConfigReader& reader) { reader.read("trainer", OptionSet::of(trainer)); });
  EXPECT_NE(text.find("^~~~~~~~~~ did you mean 'trainer.max_epochs'?"), std::string::npos) << text;
}

// The last line of the error for `text`, a key of [schedule].
std::string hint_of_schedule_key(const std::string& text) {
  const std::string error = reading_error("[schedule]\n" + text, [](ConfigReader& reader) {
    reader.add_key_hint("steps", "trainer.max_steps");
    reader.add_key_hint("epochs", "trainer.max_epochs");
    for (const char* key : {"schedule.name", "schedule.step_size", "schedule.warmup_steps", "schedule.max_lr",
                            "schedule.max_momentum", "trainer.max_steps"})
      reader.read_name(key);
  });
  const std::size_t start = error.find("did you mean");
  return start == std::string::npos ? "" : error.substr(start, error.find('\n', start) - start);
}

TEST(ConfigReader, SuggestsKeysOfTheSameTableFirst) {
  EXPECT_EQ(hint_of_schedule_key("steps = 3"),
            "did you mean 'step_size', 'warmup_steps' or 'trainer.max_steps'?");
  EXPECT_EQ(hint_of_schedule_key("warmup-step = 3"), "did you mean 'warmup_steps'?");  // spelled alike
  EXPECT_EQ(hint_of_schedule_key("lr = 3"), "did you mean 'max_lr'?");
  EXPECT_EQ(hint_of_schedule_key("warmup = 3"), "did you mean 'warmup_steps'?");
  EXPECT_EQ(hint_of_schedule_key("epochs = 3"), "did you mean 'trainer.max_epochs'?");
  EXPECT_EQ(hint_of_schedule_key("max_steps = 3"), "did you mean 'trainer.max_steps'?");
  EXPECT_EQ(hint_of_schedule_key("max_gamma = 3"), "");  // one of two words is no guess
}

TEST(ConfigReader, PutsTheHintOnTheLineOfAnOverride) {
  ConfigDocument document = mnist_toml("");
  document.set("trainer.max_epoch=3");
  SampleTrainerOptions trainer;
  ConfigReader reader(document);
  reader.read("trainer", OptionSet::of(trainer));
  try {
    reader.finish();
    FAIL() << "no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "command line: trainer.max_epoch=3: error: unknown key 'trainer.max_epoch'; "
                 "did you mean 'trainer.max_epochs'?\n1 error, nothing was run");
  }
}

TEST(ConfigReader, RefusesAValueWhereATableBelongs) {
  SampleTrainerOptions trainer;
  const auto read = [&](ConfigReader& reader) { reader.read("trainer", OptionSet::of(trainer)); };
  EXPECT_NE(reading_error("trainer = 3", read).find("'trainer': expected a table, found the integer 3"),
            std::string::npos);
  EXPECT_NE(
      reading_error("[[trainer]]\nmax_epochs = 1", read).find("expected a table, found an array of 1 value"),
      std::string::npos);
}

TEST(ConfigReader, ReadsOneTableWithSeveralSets) {
  SampleTrainerOptions trainer;
  SampleOptimizerOptions optimizer;
  const std::string text =
      reading_error("[both]\nmax_epochs = 3\nlr = 0.5\nname = 'sgd'", [&](ConfigReader& reader) {
        EXPECT_EQ(reader.read_name("both.name"), "sgd");
        reader.read("both", OptionSet::of(trainer));
        reader.read("both", OptionSet::of(optimizer));
      });
  EXPECT_EQ(text, "");
  EXPECT_EQ(trainer.max_epochs, 3);
  EXPECT_EQ(optimizer.lr, 0.5);
  EXPECT_EQ(optimizer.name, "sgd");
}

TEST(ConfigReader, KnowsARequestedTableButNotItsKeys) {
  const auto ask = [](ConfigReader& reader) { EXPECT_TRUE(reader.has("ema")); };
  EXPECT_EQ(reading_error("[ema]", ask), "");
  EXPECT_NE(reading_error("[ema]\ndecay = 1", ask).find("unknown key 'ema.decay'"), std::string::npos);
  const std::string near =
      reading_error("[emaa]", [](ConfigReader& reader) { EXPECT_FALSE(reader.has("ema")); });
  EXPECT_NE(near.find("did you mean 'ema'?"), std::string::npos) << near;
}

TEST(ConfigReader, ShowsErrorsOfTheCallerAtTheirPlace) {
  const std::vector<std::string> models{"lenet", "mlp"};
  const std::string text =
      reading_error("[model]\nname = \"lenett\"\nhidden = 3\n", [&](ConfigReader& reader) {
        EXPECT_EQ(reader.read_name("model.name"), "lenett");
        reader.error("model.name", "unknown model 'lenett'", models);
        reader.error("model.classes", "classes are needed");
        reader.error("trainer.max_epochs", "max_epochs or max_steps is needed");
        reader.skip("model");
      });
  EXPECT_EQ(text,
            "mnist.toml: error: max_epochs or max_steps is needed\n"
            "mnist.toml:1:2: error: classes are needed\n"
            "    1 | [model]\n"
            "      |  ^~~~~\n"
            "mnist.toml:2:8: error: unknown model 'lenett'\n"
            "    2 | name = \"lenett\"\n"
            "      |        ^~~~~~~~ did you mean 'lenet'?\n"
            "3 errors, nothing was run");
}

TEST(ConfigReader, MarksTheWholeDocumentAsRead) {
  const auto skip = [](ConfigReader& reader) { reader.skip(""); };
  const auto refuse = [&](ConfigReader& reader) {
    reader.skip("");
    reader.error("model.freeze[1]", "'b' matches no name");
  };
  EXPECT_EQ(reading_error("seed = 1\n[model]\nname = \"mlp\"\n[[more]]\nkey = 1\n", skip), "");
  EXPECT_EQ(reading_error("[model]\nfreeze = [\"a\", \"b\"]\n", refuse),
            "mnist.toml:2:16: error: 'b' matches no name\n"
            "    2 | freeze = [\"a\", \"b\"]\n"
            "      |                ^~~\n"
            "1 error, nothing was run");
}

TEST(ConfigReader, ListsAllCandidatesWhenNoneIsNear) {
  const std::vector<std::string> models{"lenet", "mlp"};
  const std::string text = reading_error("model.name = 'resnet50'", [&](ConfigReader& reader) {
    reader.read_name("model.name");
    reader.error("model.name", "unknown model 'resnet50'", models);
  });
  EXPECT_NE(text.find("^~~~~~~~~~ available: lenet, mlp\n"), std::string::npos) << text;
}

TEST(ConfigReader, RequiresANameToBeAString) {
  const std::string text = reading_error("[model]\nname = 3", [](ConfigReader& reader) {
    EXPECT_EQ(reader.read_name("model.name"), std::nullopt);
  });
  EXPECT_NE(text.find("'model.name': expected a string, found the integer 3"), std::string::npos) << text;
}

TEST(ConfigReader, AlignsCaretsByCharacters) {
  const std::string text = reading_error("\"\xc3\xa4\" = 1\nkey = 1", [](ConfigReader&) {});
  EXPECT_EQ(text,
            "mnist.toml:1:1: error: unknown key '\"\xc3\xa4\"'\n"
            "    1 | \"\xc3\xa4\" = 1\n"
            "      | ^~~\n"
            "mnist.toml:2:1: error: unknown key 'key'\n"
            "    2 | key = 1\n"
            "      | ^~~\n"
            "2 errors, nothing was run");
}

// The groups of a config, each with a name and a rate.
std::vector<SampleOptimizerOptions> groups_of(ConfigReader& reader) {
  std::vector<SampleOptimizerOptions> groups(reader.num_tables("optimizer.groups"));
  for (std::size_t i = 0; i < groups.size(); ++i)
    reader.read("optimizer.groups[" + std::to_string(i) + "]", OptionSet::of(groups[i]));
  return groups;
}

TEST(ConfigReader, ReadsArraysOfTables) {
  std::vector<SampleOptimizerOptions> groups;
  const auto read = [&](ConfigReader& reader) { groups = groups_of(reader); };
  EXPECT_EQ(reading_error("[[optimizer.groups]]\nname = 'a'\n[[optimizer.groups]]\nlr = 2", read), "");
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].name, "a");
  EXPECT_EQ(groups[1].lr, 2);
  EXPECT_EQ(reading_error("optimizer.groups = [{lr = 3}]", read), "");
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].lr, 3);
  EXPECT_EQ(reading_error("optimizer.groups = []", read), "");
  EXPECT_EQ(reading_error("", read), "");
  EXPECT_TRUE(groups.empty());
}

TEST(ConfigReader, ShowsTheLineOfAnErrorInAnArrayOfTables) {
  EXPECT_EQ(reading_error("[[optimizer.groups]]\nlr = 1\n[[optimizer.groups]]\nlr = 'x'\nnme = 'b'",
                          [](ConfigReader& reader) {
                            groups_of(reader);
                            reader.error("optimizer.groups[0]", "this one");
                            reader.error("optimizer.groups[0].name", "its name");
                            EXPECT_EQ(reader.num_errors(), 3u);
                          }),
            "mnist.toml:1:1: error: this one\n"
            "    1 | [[optimizer.groups]]\n"
            "      | ^~~~~~~~~~~~~~~~~~~~\n"
            "mnist.toml:1:1: error: its name\n"
            "    1 | [[optimizer.groups]]\n"
            "      | ^~~~~~~~~~~~~~~~~~~~\n"
            "mnist.toml:4:6: error: 'optimizer.groups[1].lr': expected a number, found the string \"x\"\n"
            "mnist.toml:5:1: error: unknown key 'optimizer.groups[1].nme'\n"
            "    5 | nme = 'b'\n"
            "      | ^~~ did you mean 'name'?\n"
            "4 errors, nothing was run");
}

TEST(ConfigReader, RefusesAValueWhereTablesBelong) {
  const auto read = [](ConfigReader& reader) { groups_of(reader); };
  for (const char* text :
       {"optimizer.groups = 3", "optimizer.groups = [{lr = 1}, 2]", "[optimizer.groups]\nlr = 1"}) {
    const std::string error = reading_error(text, read);
    EXPECT_NE(error.find("'optimizer.groups': expected tables, [[optimizer.groups]], found "),
              std::string::npos)
        << error;
    EXPECT_NE(error.find("\n1 error"), std::string::npos) << error;
  }
}

}  // namespace
}  // namespace kindling
