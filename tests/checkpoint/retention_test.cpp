// Which checkpoints are kept, compared with a model of it in a few lines.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iostream>
#include <random>
#include <set>

#include "checkpoint/saved_states.h"
#include "support/file_faults.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Values = std::map<std::int64_t, std::optional<double>>;  // by step

bool can_be_best(const std::optional<double>& value) { return value && std::isfinite(*value); }

// Step by step: a checkpoint is kept if fewer than keep_last are later, or fewer than keep_best are better
// (of equal ones, earlier), or none of its keep_every_n_steps is earlier.
Values staying_of(const Values& all, const CheckpointRetention& retention) {
  Values staying;
  for (const auto& [step, value] : all) {
    std::int64_t later = 0, better = 0;
    const std::int64_t every = retention.keep_every_n_steps;
    bool is_first = every > 0;
    for (const auto& [other_step, other] : all) {
      if (other_step > step) ++later;
      if (every > 0 && other_step < step && other_step / every == step / every) is_first = false;
      if (!can_be_best(value) || !can_be_best(other)) continue;
      const double gain = retention.higher_is_better ? *other - *value : *value - *other;
      if (gain > 0 || (gain == 0 && other_step < step)) ++better;
    }
    if (later < retention.keep_last || (can_be_best(value) && better < retention.keep_best) || is_first)
      staying[step] = value;
  }
  return staying;
}

std::optional<double> random_value(std::mt19937& random) {
  const std::optional<double> values[] = {{},  std::nan(""), INFINITY, -INFINITY, 0.0,
                                          1.0, 1.0,          2.0,      2.5,       -3.0};
  return values[random() % std::size(values)];
}

// Files that no run may touch: their names and bytes.
std::map<std::string, std::string> add_foreign_files(const std::filesystem::path& folder) {
  save_step(folder / "step-00000500.safetensors", 500, "another run", -100.0);
  save_step(folder / "step-00000001.safetensors", 1, "another run", -100.0);
  save_step(folder / "step-00000502.safetensors", 502, "run", -100.0, WithChecksums::no);
  save_step(folder / "best.safetensors", 503, "run", -100.0);
  save_step(folder / "step-9.safetensors", 9, "run", -100.0);
  for (const char* name : {"step-00000504.safetensors", "notes.txt", ".step-notes"})
    std::ofstream(folder / name) << "somebody's";
  std::map<std::string, std::string> files;
  for (const std::string& name : names_in(folder))
    if (name != ".lock") files[name] = read_file(folder / name, 1 << 20);
  return files;
}

void expect_files(const std::filesystem::path& folder, const Values& wanted,
                  const std::map<std::string, std::string>& foreign, std::set<std::string> others) {
  for (const auto& [name, bytes] : foreign) {
    EXPECT_EQ(read_file(folder / name, 1 << 20), bytes) << name;
    others.insert(name);
  }
  for (const auto& [step, value] : wanted)
    others.insert(others.end(), "step-" + std::string(8 - std::to_string(step).size(), '0') +
                                    std::to_string(step) + ".safetensors");
  others.insert(".lock");
  EXPECT_EQ(names_in(folder), std::vector<std::string>(others.begin(), others.end()));
}

TEST(Retention, KeepsExactlyTheCheckpointsOfTheModel) {
  const Scratch scratch(memory_folder());
  UnsyncedCalls calls;
  const ScopedFileOperations in_force(calls);
  std::mt19937 random(7);
  const auto up_to = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % 100) % (most + 1);
  };
  std::size_t saves = 0, deleted = 0;
  for (int sequence = 0; sequence < 200 && !testing::Test::HasFailure(); ++sequence) {
    const std::filesystem::path path = scratch / std::to_string(sequence);
    const CheckpointRetention retention = {.keep_last = 2 + up_to(2),
                                           .keep_best = up_to(3),
                                           .higher_is_better = up_to(1) == 0,
                                           .keep_every_n_steps = sequence % 2 == 0 ? 0 : 5 + up_to(10)};
    const CheckpointFolder folder(path, retention);
    const auto foreign = add_foreign_files(path);
    Values model;
    std::int64_t step = 1;
    for (int save = 0; save < 12; ++save, ++saves) {
      step += 1 + up_to(4);
      model[step] = random_value(random);
      save_step(folder.file_of(step), step, "run", model[step]);
      folder.prune("run");
      deleted += model.size();
      model = staying_of(model, retention);
      deleted -= model.size();
      expect_files(path, model, foreign, {});
    }
  }
  EXPECT_GT(deleted, saves / 3);
  std::cout << "R16: 200 sequences, " << saves << " saves, " << deleted << " deletions as in the model\n";
}

}  // namespace
}  // namespace kindling
