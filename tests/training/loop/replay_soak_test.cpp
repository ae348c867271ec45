// Replays of random runs, changes and poisoned samples. KINDLING_SOAK_REPLAYS in the environment: how many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <random>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/number_text.h"
#include "kindling/data/digits.h"
#include "kindling/data/table_data.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/models/mlp.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/replay.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

int num_replays(int in_ci) {
  const char* set = std::getenv("KINDLING_SOAK_REPLAYS");
  return set == nullptr ? in_ci : std::atoi(set);
}

// --- Changes ---

// 30 samples of 4 numbers, which a layer with 3 outputs sorts into classes; 5 epochs of 8 steps.
struct AlteredRun {
  explicit AlteredRun(fs::path folder) : run(std::move(folder)) { fs::create_directories(run); }

  TrainerOptions options() const { return {.max_epochs = 5, .log_every_n_steps = 0, .optimizer = sgd(lr)}; }
  void train(std::int64_t log_every) {
    TrainerOptions recorded = options();
    recorded.log_every_n_steps = log_every;
    recorded.loggers = {std::make_shared<JsonlLogger>(run / "metrics.jsonl")};
    recorded.callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
        .dirpath = run / "checkpoints", .every_n_epochs = 0, .every_n_steps = 5, .keep_last = 100})};
    TensorData data = made_data();
    Trainer(recorded).fit(made_model(), data);
  }
  std::string error_of_replay(std::int64_t step, std::int64_t log_every) const {
    TrainerOptions again = options();
    again.log_every_n_steps = log_every;
    TensorData data = made_data();
    try {
      replay(again, made_model(), data, {.run = run, .step = step, .until = 40});
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }
  TensorData made_data() const {
    return {{x, y}, {x.narrow(0, 0, 6), y.narrow(0, 0, 6)}, {.batch_size = 4, .seed = 3}};
  }
  static std::shared_ptr<Mlp> made_model() {
    at::manual_seed(5);
    return std::make_shared<Mlp>(MlpOptions{.hidden = {8}, .num_classes = 3});
  }

  fs::path run;
  double lr = 0.1;
  at::Tensor x = at::arange(120, at::kFloat).mul(0.37).sin().view({30, 4}), y = at::arange(30).remainder(3);
};

// Changes the last digit but one of a number (of 17 digits, the last one may not matter) in a line of
// metrics.jsonl that the replay from this step on repeats.
void change_a_record(const fs::path& run, std::int64_t from_step, std::mt19937& random) {
  const fs::path file = run / "metrics.jsonl";
  std::string text = read_file(file, 1 << 22);
  std::vector<std::size_t> places;
  for (const std::string key :
       {"\"train_loss\": ", "\"val_loss\": ", "\"train_loss_step\": ", "\"lr\": ", "\"log_digest\": "})
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const std::size_t line = text.rfind('\n', at) + 1, step = text.find("\"global_step\": ", line) + 15;
      if (std::stoll(text.substr(step)) >= from_step) places.push_back(at + key.size());
    }
  std::size_t at = places[random() % places.size()];
  const std::size_t exponent = text.find_first_of("e,}", at);
  at = exponent - (exponent - at > 3 ? 2 : 1);
  text[at] = text[at] == '5' ? '6' : '5';
  write_file_atomically(file, text);
}

void change_a_checkpoint(const fs::path& file, bool weights, std::mt19937& random) {
  StateDict state = load_checkpoint(file);
  if (!weights) {
    state.metadata.at("progress.log_digest") = std::to_string(random());
  } else {
    std::vector<at::Tensor> changed;
    for (auto& [name, tensor] : state.tensors)
      if (name.starts_with("model.") && tensor.is_floating_point()) changed.push_back(tensor);
    at::Tensor one = changed[random() % changed.size()].flatten();
    const auto i = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(one.numel()));
    one[i] = std::nextafter(one[i].item<float>(), 100.F);
  }
  save_checkpoint(state, file);
}

TEST(ReplayedChanges, AreAllFound) {
  const int trials = num_replays(15);
  std::mt19937 random(11);
  const char* kinds[] = {"record", "weights", "digest of a checkpoint", "data", "rate"};
  for (int trial = 0; trial < trials; ++trial) {
    const Scratch scratch(memory_folder());
    const std::int64_t log_every = random() % 2, step = 1 + static_cast<std::int64_t>(random() % 30),
                       start = (step - 1) / 5 * 5;
    AlteredRun run(scratch / "run");
    run.train(log_every);
    ASSERT_EQ(run.error_of_replay(step, log_every), "") << "unchanged";
    const std::int64_t checkpoint =
        start + 5 * (1 + static_cast<std::int64_t>(random() % ((40 - start) / 5)));
    const fs::path file = run.run / "checkpoints" /
                          ("step-000000" + std::string(checkpoint < 10 ? "0" : "") +
                           std::to_string(checkpoint) + ".safetensors");
    const int kind = trial % 5;
    if (kind == 0) change_a_record(run.run, start + 1, random);
    if (kind == 1 || kind == 2) change_a_checkpoint(file, kind == 1, random);
    const auto sample = static_cast<std::int64_t>(random() % 30);
    if (kind == 3) run.x = run.x.clone(), run.x[sample][random() % 4].mul_(1.001).add_(1e-3);
    if (kind == 4) run.lr = std::nextafter(0.1, 1);
    EXPECT_NE(run.error_of_replay(step, log_every), "")
        << kinds[kind] << ", trial " << trial << ", step " << step << ", " << log_every;
  }
  std::cout << "[          ] " << trials << " changes\n";
}

// --- Poisoned samples ---

// Returns the rank of a sample by its loss in the step of the next epoch that has it, from 1.
template <class Data>
std::int64_t rank_of(Data& data, std::int64_t sample, const fs::path& run, const TrainerOptions& options,
                     const std::shared_ptr<Module>& model, std::int64_t epoch, std::int64_t start) {
  data.prepare();
  const auto loader = data.train_dataloader();
  DataLoader::Cursor cursor(*loader);
  cursor.seek(epoch);
  std::int64_t step = start;
  for (Batch batch; cursor.next(batch);) {
    ++step;
    if (cursor.indices().eq(sample).any().template item<bool>()) break;
  }
  const ReplayResult result = replay(options, model, data, {.run = run, .step = step});
  const ReplayedBatch& batch = result.steps.at(0).batches.at(0);
  EXPECT_TRUE(batch.losses.defined()) << batch.no_losses;
  if (!batch.losses.defined()) return 1000;
  const at::Tensor is_own = batch.indices.eq(sample);
  EXPECT_EQ(is_own.sum().template item<std::int64_t>(), 1);
  const double own = batch.losses.masked_select(is_own).template item<double>();
  return std::isnan(own) ? 1 : 1 + batch.losses.gt(own).sum().template item<std::int64_t>();
}

double best_accuracy(const FitResult& result) { return result.metrics.at("val_acc"); }

TrainerOptions with_checkpoints(TrainerOptions options, const fs::path& run) {
  options.callbacks = {
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = run / "checkpoints"})};
  return options;
}

TEST(PoisonedSamples, OfDigitsAreAmongTheFirstThree) {
  const Scratch scratch(memory_folder());
  Digits digits({.batch_size = 32});
  digits.prepare();
  const auto tensors = [&](DataLoader& loader) {
    const Batch all =
        digits.on_after_batch_transfer(loader.dataset().slice(0, loader.dataset().size()), Stage::train);
    return std::vector<at::Tensor>{all.tensors()[0].clone(), all.tensors()[1].to(at::kLong)};
  };
  const std::vector<at::Tensor> train = tensors(*digits.train_dataloader()),
                                val = tensors(*digits.val_dataloader());
  TrainerOptions options{.max_epochs = 6};
  const auto model = [] {
    at::manual_seed(1);
    return std::make_shared<Mlp>(MlpOptions{.hidden = {32}, .num_classes = 10});
  };
  TensorData clean(train, val, {.batch_size = 32, .seed = 1});
  const FitResult fitted = Trainer(with_checkpoints(options, scratch.folder())).fit(model(), clean);
  ASSERT_GE(best_accuracy(fitted), 0.9);
  options.max_epochs = 7;
  const int trials = num_replays(10);
  std::mt19937 random(3);
  int found = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const auto sample = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(train[0].size(0)));
    std::vector<at::Tensor> poisoned{train[0].clone(), train[1].clone()};
    poisoned[1][sample] = (poisoned[1][sample] + 1 + static_cast<std::int64_t>(random() % 9)).remainder(10);
    if (trial % 2 == 1) poisoned[0][sample].mul_(1000);
    TensorData data(poisoned, val, {.batch_size = 32, .seed = 1});
    const std::int64_t rank =
        rank_of(data, sample, scratch.folder(), options, model(), 6, fitted.progress.global_step);
    if (rank <= 3) ++found;
    if (rank > 3) std::cout << "[          ] trial " << trial << ": rank " << rank << "\n";
  }
  std::cout << "[          ] " << found << " of " << trials << " poisoned digits\n";
  EXPECT_GE(found, trials * 95 / 100);
}

// Three classes of points in a plane, with a little noise.
struct PoisonedTable {
  struct Row {
    double x, y;
    std::string kind;
  };
  PoisonedTable() {
    std::mt19937 random(9);
    std::normal_distribution<double> noise(0, 0.4);
    const char* kinds[] = {"ash", "elm", "oak"};
    const double centers[][2] = {{0, 2}, {-2, -1}, {2, -1}};
    for (std::size_t i = 0; i < 600; ++i)
      rows.push_back({centers[i % 3][0] + noise(random), centers[i % 3][1] + noise(random), kinds[i % 3]});
  }
  void write(const fs::path& file) const {
    std::string text = "x,y,kind\n";
    for (const Row& row : rows) text += number_text(row.x) + "," + number_text(row.y) + "," + row.kind + "\n";
    write_file_atomically(file, text);
  }
  std::vector<Row> rows;
};

TEST(PoisonedSamples, OfATableAreAmongTheFirstThree) {
  const Scratch scratch(memory_folder());
  const PoisonedTable clean;
  const fs::path file = scratch / "trees.csv";
  clean.write(file);
  TrainerOptions options{.max_epochs = 10};
  const auto model = [] {
    at::manual_seed(1);
    return std::make_shared<Mlp>(MlpOptions{.hidden = {16}, .num_classes = 3});
  };
  const auto table = [&] {
    return TableData({.file = file, .label = "kind", .val_fraction = 0.2}, {.batch_size = 32, .seed = 1});
  };
  TableData data = table();
  const FitResult fitted = Trainer(with_checkpoints(options, scratch.folder())).fit(model(), data);
  ASSERT_GE(best_accuracy(fitted), 0.9);
  options.max_epochs = 11;
  const std::vector<std::string> rows = data.train_ids().values;
  const int trials = num_replays(10);
  std::mt19937 random(3);
  int found = 0;
  for (int trial = 0; trial < trials; ++trial) {
    const std::size_t sample = random() % rows.size();
    PoisonedTable poisoned = clean;
    PoisonedTable::Row& row = poisoned.rows.at(std::stoul(rows[sample]) - 1);
    row.kind = row.kind == "ash" ? "elm" : "ash";
    if (trial % 2 == 1) row.x *= 1000, row.y *= 1000;
    poisoned.write(file);
    TableData changed = table();
    const std::int64_t rank = rank_of(changed, static_cast<std::int64_t>(sample), scratch.folder(), options,
                                      model(), 10, fitted.progress.global_step);
    if (rank <= 3) ++found;
    if (rank > 3) std::cout << "[          ] trial " << trial << ": rank " << rank << "\n";
  }
  std::cout << "[          ] " << found << " of " << trials << " poisoned rows\n";
  EXPECT_GE(found, trials * 95 / 100);
}

}  // namespace
}  // namespace kindling
