// A step that is not finite on one rank: the warning names the rank, and its batch is saved.
#include <filesystem>
#include <set>
#include <utility>

#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"
#include "training/step/nonfinite_fit.h"

namespace kindling {
namespace {

struct PoisonedMlp : Mlp {
  PoisonedMlp() : Mlp(MlpOptions{.hidden = {16}}) { forward(at::zeros({1, 100})); }
  at::Tensor training_step(const Batch& batch) override {
    const bool is_now = is_poisoned && trainer().batch_index() == 2 && (comes_again || !has_come);
    has_come = has_come || is_now;
    return Mlp::training_step(is_now ? Batch{batch[0] / 0, batch[1]} : batch);
  }
  bool is_poisoned = false, comes_again = true, has_come = false;
};

std::vector<RankRun> run_poisoned(const std::set<std::int64_t>& ranks, const std::filesystem::path& folder,
                                  std::int64_t log_every_n_steps, bool comes_again = true) {
  std::int64_t rank = 0;
  return run_ranks(
      3,
      [&](TrainerOptions& options, std::int64_t) {
        options.nonfinite_dir = folder;
        options.log_every_n_steps = log_every_n_steps;
      },
      [&] {
        auto model = std::make_shared<PoisonedMlp>();
        model->is_poisoned = ranks.contains(rank++);
        model->comes_again = comes_again;
        return model;
      });
}

std::set<std::string> names_in(const std::filesystem::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

std::string file_of_rank(std::int64_t rank) {
  return "nonfinite-step-00000003" + (rank > 0 ? ".rank" + std::to_string(rank) : "") + ".safetensors";
}

TEST(DivergenceOfAll, NamesTheRanksAndSavesTheirBatches) {
  for (const std::int64_t log_every_n_steps : {0, 1})
    for (const std::set<std::int64_t>& ranks : {std::set<std::int64_t>{1}, {0}, {0, 2}}) {
      const Scratch scratch;
      const HeardWarnings warnings;
      const auto runs = run_poisoned(ranks, scratch.folder(), log_every_n_steps);
      for (const RankRun& run : runs) {
        EXPECT_EQ(run.result.status, FitStatus::diverged);
        EXPECT_EQ(run.result.diverged_step, 3);
      }
      std::set<std::string> files;
      ASSERT_EQ(warnings.texts.size(), 3U);  // one per rank
      for (const std::int64_t rank : {0, 1, 2}) {
        const std::string text = "rank " + std::to_string(rank) +
                                 ", batch 2 (counted from 0): the output of aten::div",
                          place = "its batch is in " + (scratch / file_of_rank(rank)).string();
        for (const std::string& warning : warnings.texts) {
          EXPECT_EQ(warning.find(text) != std::string::npos, ranks.contains(rank)) << warning;
          EXPECT_EQ(warning.find(place) != std::string::npos, ranks.contains(rank)) << warning;
        }
        if (ranks.contains(rank)) files.insert(file_of_rank(rank));
      }
      EXPECT_EQ(names_in(scratch.folder()), files);
    }
}

// The batch is that of the rank: rank 1 has different samples.
TEST(DivergenceOfAll, SavesTheBatchOfTheRank) {
  const Scratch scratch;
  const HeardWarnings warnings;
  const auto runs = run_poisoned({0, 1}, scratch.folder(), 0);
  const StateDict first = load_safetensors(scratch / file_of_rank(0)),
                  second = load_safetensors(scratch / file_of_rank(1));
  for (const StateDict* saved : {&first, &second}) {
    EXPECT_EQ(saved->metadata.at("global_step"), "3");
    EXPECT_EQ(saved->metadata.at("batch"), "2");
    EXPECT_NE(saved->metadata.at("found").find("the output of aten::div"), std::string::npos);
    EXPECT_EQ(saved->find("batch.0")->size(0), kGlobalBatch / 3);
  }
  EXPECT_FALSE(first.find("batch.0")->equal(*second.find("batch.0")));
}

TEST(DivergenceOfAll, SavesAllBatchesIfNoneCanBeBlamed) {
  const Scratch scratch;
  const HeardWarnings warnings;
  run_poisoned({1}, scratch.folder(), 1, /*comes_again=*/false);
  EXPECT_EQ(names_in(scratch.folder()),
            (std::set<std::string>{file_of_rank(0), file_of_rank(1), file_of_rank(2)}));
  for (const std::string& warning : warnings.texts)
    EXPECT_NE(warning.find("rank 2, batch 2 (counted from 0): re-running the step gave finite values"),
              std::string::npos)
        << warning;
}

}  // namespace
}  // namespace kindling
