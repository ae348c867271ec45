// The completion scripts, run by the shells that read them.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/joined.h"
#include "cli/commands/program_run.h"
#include "cli/help/help.h"
#include "support/scratch.h"

namespace kindling {
namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = ::popen(command.c_str(), "r");
  std::array<char, 4096> part{};
  while (std::fgets(part.data(), part.size(), pipe) != nullptr) text += part.data();
  ::pclose(pipe);
  return text;
}

class BashCompletion : public testing::Test {
 protected:
  BashCompletion() {
    write_text(scratch_ / "completion.bash", run_program({"completion", "bash"}).out);
    write_text(scratch_ / "digits.toml", "");
  }
  // The proposals for the last of the words, as bash splits them.
  std::string proposals(const std::string& words) {
    return output_of(
        "cd " + scratch_.folder().string() + " && bash -c 'source ./completion.bash; COMP_WORDS=(" + words +
        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _kindling_complete; echo \"${COMPREPLY[@]}\"'");
  }

  const Scratch scratch_;
};

TEST_F(BashCompletion, ProposesCommandsOptionsKeysAndValues) {
  EXPECT_EQ(proposals("kindling exp"), "export\n");
  EXPECT_EQ(proposals("kindling fit --allow"), "--allow-config-change\n");
  EXPECT_EQ(proposals("kindling fit --trainer.max_ep"), "--trainer.max_epochs\n");
  EXPECT_EQ(proposals("kindling fit trainer.max_ep"), "trainer.max_epochs=\n");
  EXPECT_EQ(proposals("kindling fit trainer.precision = bf"), "bf16-mixed bf16-true\n");
  EXPECT_EQ(proposals("kindling fit model.name ="),
            "backbone exported lenet linear_regression mlp mlp_regressor resnet18 small_cnn "
            "softmax_regression unet unet_regressor\n");
  EXPECT_EQ(proposals("kindling fit --trainer.on_nonfinite sk"), "skip\n");
  EXPECT_EQ(proposals("kindling fit --color a"), "auto always\n");
  EXPECT_EQ(proposals("kindling fit dig"), "digits.toml\n");
  EXPECT_EQ(proposals("kindling bench ma"), "matmul\n");
  EXPECT_EQ(proposals("kindling bench matmul --max"), "--max-n\n");
  EXPECT_EQ(proposals("kindling list opt"), "optimizers\n");
  EXPECT_EQ(proposals("kindling devices trainer.max_ep"), "\n");
}

TEST_F(BashCompletion, ProposesTopicsNamesAndMetrics) {
  EXPECT_EQ(proposals("kindling help trainer.prec"), "trainer.precision\n");
  EXPECT_EQ(proposals("kindling help adamw"), "adamw\n");
  EXPECT_EQ(proposals("kindling data check mn"), "mnist\n");
  EXPECT_EQ(proposals("kindling data show digits"), "digits digits.toml\n");
  EXPECT_EQ(proposals("kindling plot --metric val_ac"), "val_acc val_accuracy\n");
}

TEST_F(BashCompletion, ProposesFilesOnlyWhereACommandTakesThem) {
  for (const std::string command : {"new", "completion", "list", "help", "devices"})
    EXPECT_EQ(proposals("kindling " + command + " digits.t"), "\n") << command;
  for (const std::string command : {"fit", "data check", "plot", "sweep", "export", "bench step"})
    EXPECT_EQ(proposals("kindling " + command + " digits.t"), "digits.toml\n") << command;
}

// zsh completes in its line editor only, so an interactive zsh runs in a pseudo-terminal of zsh itself.
class ZshCompletion : public testing::Test {
 protected:
  void SetUp() override {
    if (std::system("zsh -fc 'zmodload zsh/zpty' > /dev/null 2>&1") != 0)
      GTEST_SKIP() << "zsh with its module zsh/zpty is not installed";
    write_text(scratch_ / "_kindling", run_program({"completion", "zsh"}).out);
    write_text(scratch_ / "digits.toml", "");
    write_text(scratch_ / "ask.zsh", R"(zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell 'source ./setup.zsh'
zpty -r -m shell output '*READY*'
for line in "$@"; do
  zpty -w -n shell "$line"$'\t\x18'
  zpty -r -m shell output '*<*>*'
  print -r -- "${${output##*<}%%>*}"
done
)");
  }
  // The lines after a Tab, in a shell that has run the commands.
  std::string completed(const std::string& commands, const std::vector<std::string>& lines) {
    write_text(
        scratch_ / "setup.zsh",
        "autoload -Uz compinit\nPS1=\n" + commands +
            "show() { print -r -- \"<$BUFFER>\"; BUFFER= }\nzle -N show\nbindkey '^X' show\nprint READY\n");
    return output_of("cd " + scratch_.folder().string() + " && timeout 60 zsh -f ask.zsh " +
                     joined(lines, " ", [](const std::string& line) { return "'" + line + "'"; }));
  }

  const Scratch scratch_;
};

TEST_F(ZshCompletion, CompletesCommandsOptionsKeysAndValues) {
  EXPECT_EQ(completed("compinit -D -u\nsource ./_kindling\n",
                      {"kindling exp", "kindling fit --allow", "kindling fit --trainer.max_ep",
                       "kindling fit trainer.max_ep", "kindling fit trainer.precision=16",
                       "kindling fit trainer.precision=bf", "kindling fit --trainer.on_nonfinite sk",
                       "kindling fit dig", "kindling bench ma", "kindling bench matmul --max",
                       "kindling list opt", "kindling help trainer.prec", "kindling data check fash",
                       "kindling devices trainer.max_ep", "kindling new dig"}),
            "kindling export \n"
            "kindling fit --allow-config-change \n"
            "kindling fit --trainer.max_epochs \n"
            "kindling fit trainer.max_epochs=\n"
            "kindling fit trainer.precision=16-mixed \n"
            "kindling fit trainer.precision=bf16-\n"  // bf16-mixed, bf16-true
            "kindling fit --trainer.on_nonfinite skip \n"
            "kindling fit digits.toml \n"
            "kindling bench matmul \n"
            "kindling bench matmul --max-n \n"
            "kindling list optimizers \n"
            "kindling help trainer.precision \n"
            "kindling data check fashion_mnist \n"
            "kindling devices trainer.max_ep\n"
            "kindling new dig\n");
}

TEST_F(ZshCompletion, IsFoundInAFolderOfFpath) {
  EXPECT_EQ(completed("fpath=($PWD $fpath)\ncompinit -D -u\n", {"kindling exp", "kindling fit --allow"}),
            "kindling export \nkindling fit --allow-config-change \n");
}

TEST(Completion, IsNamedAfterTheProgram) {
  Registry registry;
  const std::string text = bash_completion(registry, "my-program");
  EXPECT_NE(text.find("complete -o filenames -F _my_program_complete my-program\n"), std::string::npos)
      << text;
  EXPECT_TRUE(zsh_completion(registry, "my-program").starts_with("#compdef my-program\n"));
}

}  // namespace
}  // namespace kindling
