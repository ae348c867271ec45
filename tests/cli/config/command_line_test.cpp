#include "cli/config/command_line.h"

#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

Request parse(std::vector<std::string> words) {
  words.insert(words.begin(), "kindling");
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  const ParsedCommandLine parsed = parse_command_line(static_cast<int>(argv.size()), argv.data());
  EXPECT_EQ(parsed.exit_code, -1);
  return parsed.request;
}

TEST(CommandLine, AcceptsOverridesInEveryFormAndPosition) {
  const Request request =
      parse({"seed=3", "--trainer.max_epochs", "5", "fit", "--model.name=mlp", "-c", "a=b.toml",
             "data.val=[0, 10]", "--name", "mine", "--trainer.num_gpus", "-1", "--config", "c.toml"});
  EXPECT_EQ(request.command, "fit");
  EXPECT_EQ(request.configs, (std::vector<std::filesystem::path>{"a=b.toml", "c.toml"}));
  EXPECT_EQ(request.overrides,
            (std::vector<std::string>{"seed=3", "trainer.max_epochs=5", "model.name=mlp", "data.val=[0, 10]",
                                      "name=mine", "trainer.num_gpus=-1"}));
}

TEST(CommandLine, KeepsTheOptionsOfACommand) {
  const Request request = parse({"validate", "--weights", "runs/digits/0001", "--progress=none", "--quiet"});
  EXPECT_EQ(request.command, "validate");
  EXPECT_EQ(request.weights, "runs/digits/0001");
  EXPECT_EQ(request.progress, "none");
  EXPECT_TRUE(request.quiet);
}

TEST(CommandLine, NamesAnUnknownCommandAndTheNearestOne) {
  const auto answer = [](std::vector<std::string> words) {
    return error_text<ConfigError>([&] { parse(std::move(words)); });
  };
  EXPECT_EQ(
      answer({"predcit", "-c", "a.toml"}),
      "kindling: there is no command 'predcit'; expected: one of fit, validate, test, predict, export, "
      "import, plot, diff, runs, sweep, new, devices, bench, doctor, list, reference; did you mean "
      "'predict'?");
  EXPECT_EQ(answer({"seed=3", "transmogrify"}),
            "kindling: there is no command 'transmogrify'; expected: one of fit, validate, test, predict, "
            "export, import, plot, diff, runs, sweep, new, devices, bench, doctor, list, reference");
  EXPECT_EQ(answer({"bench", "matmull", "--json"}),
            "bench: there is no command 'matmull'; expected: one of matmul, log, pair, transfer, step; did "
            "you mean "
            "'matmul'?");
}

TEST(CommandLine, RefusesAnOverrideWithoutValue) {
  EXPECT_EQ(error_text<ConfigError>([] {
              parse({"fit", "--trainer.max_epochs"});
            }),
            "command line: '--trainer.max_epochs' has no value; expected: --trainer.max_epochs VALUE");
}

}  // namespace
}  // namespace kindling
