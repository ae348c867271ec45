#include <gtest/gtest.h>

#include "cli/commands/program_run.h"
#include "cli/config/config_topics.h"
#include "cli/help/help.h"
#include "docs/references.h"
#include "kindling/base/error.h"
#include "kindling/config/document.h"
#include "kindling/config/printer.h"
#include "kindling/config/reader.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class ConfigHelp : public testing::Test {
 protected:
  ConfigHelp() { register_builtin(registry_); }
  Registry registry_;
};

TEST_F(ConfigHelp, ExplainsAKey) {
  EXPECT_EQ(config_help(registry_, "trainer.precision"),
            "trainer.precision\n"
            "  numeric precision of weights and computation\n\n"
            "type     \"32-true\", \"bf16-mixed\", \"16-mixed\", \"bf16-true\", \"64-true\"\n"
            "default  \"32-true\"\n"
            "example  [trainer] precision = \"bf16-mixed\"\n"
            "page     docs/reference/configuration.md#trainer\n");
  EXPECT_EQ(config_help(registry_, "accumulate_grad_batches"),
            config_help(registry_, "trainer.accumulate_grad_batches"));
}

TEST_F(ConfigHelp, ExplainsTablesAndNames) {
  EXPECT_TRUE(
      config_help(registry_, "early_stopping").starts_with("[early_stopping] turns early stopping on.\n"));
  EXPECT_EQ(config_help(registry_, "models"), config_help(registry_, "model"));
  EXPECT_TRUE(config_help(registry_, "adamw")
                  .starts_with("adamw: Adam with decoupled weight decay\n\n[optimizer]\nname = \"adamw\"\n"));
}

TEST_F(ConfigHelp, DescribesAKeyAsTheDefaultOptimizerDoes) {
  EXPECT_TRUE(
      config_help(registry_, "optimizer.lr").starts_with("optimizer.lr (of adam)\n  learning rate\n"));
  EXPECT_NE(run_program({"fit", "--help"}).out.find("\n  optimizer.lr        learning rate\n"),
            std::string::npos);
}

TEST_F(ConfigHelp, ShowsOnlyTheExampleOfTheCommand) {
  const std::string general = "kindling help trainer.precision";
  EXPECT_NE(run_program({"--help"}).out.find(general), std::string::npos);
  for (const char* command : {"fit", "sweep", "new", "devices", "plot", "bench", "doctor", "completion"}) {
    const std::string help = run_program({command, "--help"}).out;
    EXPECT_EQ(help.find(general), std::string::npos) << help;
    EXPECT_NE(help.find("\nExample: "), std::string::npos) << help;
  }
}

TEST_F(ConfigHelp, RefusesAnUnknownTopicWithTheNearestOne) {
  const auto answer = [&](const std::string& topic) {
    return error_text<ConfigError>([&] { config_help(registry_, topic); });
  };
  EXPECT_EQ(answer("trainer.precison"),
            "kindling help: there is no command, key, table, or name 'trainer.precison'; did you mean "
            "'trainer.precision'?");
  EXPECT_EQ(answer("learning_rate"),
            "kindling help: there is no command, key, table, or name 'learning_rate'; did you mean "
            "'optimizer.lr'?");
}

// Every key has a description, an example that the config accepts, and a row in the reference.
TEST_F(ConfigHelp, CoversEveryKey) {
  const ConfigTopics topics(registry_);
  const std::string reference = configuration_reference(registry_);
  const std::vector<ConfigKey> keys = config_keys(topics);
  EXPECT_GT(keys.size(), 200u);
  for (const ConfigKey& key : keys) {
    const OptionText text = describe(*key.option);
    EXPECT_FALSE(text.description.empty()) << key.path << " has no description";
    EXPECT_FALSE(text.example.empty()) << key.path << " (" << key.owner << ") has no example";
    EXPECT_NE(reference.find("| `" + key.option->name + "` |"), std::string::npos) << key.path;
    if (text.example.empty()) continue;
    const ConfigDocument document =
        ConfigDocument::parse(key.option->name + " = " + text.example + "\n", "example", ".");
    ConfigReader reader(document);
    OptionSet alone;
    alone.add(*key.option);
    reader.read("", alone);
    EXPECT_EQ(error_text<ConfigError>([&] { reader.finish(); }), "(no error)") << key.path;
  }
}

}  // namespace
}  // namespace kindling
