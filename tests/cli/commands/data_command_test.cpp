#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/commands/program_run.h"
#include "kindling/base/error.h"
#include "kindling/cli/registry.h"
#include "kindling/data/data_module.h"
#include "kindling/data/dataset.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// Ten samples, of which the third and the eighth cannot be read.
struct TornSamples : Dataset {
  std::int64_t size() const override { return 10; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    for (std::int64_t i = 0; i < indices.numel(); ++i) {
      const std::int64_t index = indices[i].item<std::int64_t>();
      if (index == 2 || index == 7)
        throw DataError({.place = "sample-" + std::to_string(index) + ".bin", .found = "the file is torn"});
    }
    batch = Batch{indices.to(at::kFloat).unsqueeze(1), indices.remainder(2)};
  }
};

struct TornData : DataModule {
  explicit TornData(DataOptions options) : DataModule(std::move(options)) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return loader; }
  std::shared_ptr<DataLoader> loader =
      std::make_shared<DataLoader>(std::make_shared<TornSamples>(), loader_options(/*train=*/true));
};

TEST(DataCheck, CountsSamplesValuesAndClasses) {
  const ProgramRun run = run_program({"data", "check", "digits"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "DIGITS");
}

TEST(DataCheck, ReadsTheDataOfAConfigWithoutAModel) {
  const Scratch scratch;
  write_text(scratch / "table.csv", "size,kind,row\n1,a,r1\n2,a,r2\n,b,r3\n4,b,r4\n5,c,r5\n");
  write_text(scratch / "table.toml",
             "[data]\nname = \"csv\"\nfile = \"table.csv\"\nlabel = \"kind\"\nid = \"row\"\ntrain = [0, "
             "4]\nval = [4, 5]\n");
  const ProgramRun run = run_program({"data", "check", (scratch / "table.toml").string()});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "TABLE");
}

TEST(DataCheck, ListsBrokenSamplesAndExitsWith3) {
  Registry registry;
  register_builtin(registry);
  registry.data<TornData>("torn", "samples of which two are torn");
  const ProgramRun run = run_program({"data", "check", "torn"}, registry);
  EXPECT_EQ(run.exit_code, 3);
  EXPECT_EQ(run.out, "TORN");
  const ProgramRun json = run_program({"data", "check", "torn", "--json"}, registry);
  EXPECT_EQ(json.exit_code, 3);
  const auto report = nlohmann::json::parse(json.out);
  EXPECT_EQ(report["num_broken"], 2);
  EXPECT_EQ(report["broken"][1]["index"], 7);
  EXPECT_EQ(report["classes"], (std::vector<int>{4, 4}));
}

TEST(DataCheck, AnUnknownNameHasASuggestion) {
  const ProgramRun run = run_program({"data", "check", "digit"});
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_EQ(run.err, "UNKNOWN");
}

TEST(DataShow, PrintsTheFirstSamples) {
  const ProgramRun run = run_program({"data", "show", "digits", "--samples", "2"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, "SHOW");
}

}  // namespace
}  // namespace kindling
