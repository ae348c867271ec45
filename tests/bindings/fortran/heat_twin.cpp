// apps/heat_fortran in C++: the same solver, surrogate and steps on the same memory layout. heat_twin
// LAST_STEP PRECISION [RANKS] prints the losses. The ranks are threads: each has the whole solver, and trains
// on the cells of its rows.
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kindling/cli/configured_training.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"
#include "kindling/distributed/process_group.h"
#include "kindling/fast_mkl/fast_mkl.h"
#include "kindling/training/trainer.h"

namespace {

constexpr std::int64_t kNx = 32, kNy = 24, kCells = kNx * kNy, kFeatures = 5;

class Solver {
 public:
  void compute_rate(std::vector<double>& rate) const {
    for (std::int64_t j = 1; j <= kNy; ++j)
      for (std::int64_t i = 1; i <= kNx; ++i) {
        const double here = at(i, j);
        rate[index(i, j)] =
            ((flux(here, at(i + 1, j)) + flux(here, at(i - 1, j))) + flux(here, at(i, j + 1))) +
            flux(here, at(i, j - 1));
      }
  }

  void advance(const std::vector<double>& rate, std::int64_t step) {
    for (std::int64_t j = 1; j <= kNy; ++j)
      for (std::int64_t i = 1; i <= kNx; ++i) u_[frame_index(i, j)] += 0.2 * rate[index(i, j)];
    u_[frame_index(1 + 7 * step % kNx, 1 + 5 * step % kNy)] += 1;
  }

  void write_features(std::vector<double>& features) const {
    constexpr std::array<std::array<std::int64_t, 2>, kFeatures> kOffsets{
        {{0, 0}, {-1, 0}, {1, 0}, {0, -1}, {0, 1}}};
    std::size_t next = 0;
    for (const auto& [di, dj] : kOffsets)
      for (std::int64_t j = 1; j <= kNy; ++j)
        for (std::int64_t i = 1; i <= kNx; ++i) features[next++] = at(i + di, j + dj);
  }

 private:
  static std::size_t frame_index(std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(i + (kNx + 2) * j);
  }
  static std::size_t index(std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(i - 1 + kNx * (j - 1));
  }
  static double conductivity(double u) { return 0.5 / (1 + u * u); }
  static double flux(double here, double there) {
    return (0.5 * (conductivity(here) + conductivity(there))) * (there - here);
  }
  double at(std::int64_t i, std::int64_t j) const { return u_[frame_index(i, j)]; }

  std::vector<double> u_ = std::vector<double>((kNx + 2) * (kNy + 2));
};

kindling::ConfiguredTraining configured_surrogate(const std::string& precision) {
  kindling::Registry registry;
  kindling::register_builtin(registry);
  kindling::ConfigDocument document;
  for (const std::string setting :
       {"model.name = \"mlp_regressor\"", "model.hidden = [32, 32]", "model.activation = \"tanh\"",
        "optimizer.name = \"adam\"", "optimizer.lr = 0.003", "trainer.num_threads = 1"})
    document.set(setting);
  document.set("trainer.precision = \"" + precision + "\"");
  return kindling::make_training(std::move(document), registry);
}

// Adds the losses of the steps, weighted by the fraction of the cells, to `losses`.
void train(kindling::Trainer& trainer, std::int64_t first_row, std::int64_t num_rows, at::ScalarType type,
           std::vector<double>& losses) {
  Solver solver;
  std::vector<double> features(kCells * kFeatures), rate(kCells);
  const at::Tensor inputs = at::from_blob(features.data(), {kCells, kFeatures}, {1, kCells}, at::kDouble)
                                .narrow(0, kNx * first_row, kNx * num_rows);
  const at::Tensor targets =
      at::from_blob(rate.data(), {kCells, 1}, at::kDouble).narrow(0, kNx * first_row, kNx * num_rows);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    solver.write_features(features);
    solver.compute_rate(rate);
    trainer.train_step(trainer.prepare_batch({inputs.to(type), targets.to(type)}));
    losses[step] = trainer.loss_value() * static_cast<double>(num_rows) / kNy;
    solver.advance(rate, static_cast<std::int64_t>(step));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  // The programs in Fortran are not linked with kindling::fast_mkl either: MKL's kernels are to be the same.
  kindling::set_fast_mkl(kindling::FastMkl::off);
  const auto num_steps = static_cast<std::size_t>(std::atoll(argv[1]));
  const std::string precision = argv[2];
  const std::int64_t num_ranks = argc > 3 ? std::atoll(argv[3]) : 1;
  const at::ScalarType type = precision == "64-true" ? at::kDouble : at::kFloat;

  std::vector<std::shared_ptr<kindling::ProcessGroup>> groups(1);  // nullptr: one rank
  if (num_ranks > 1) groups = kindling::ProcessGroup::from_threads(num_ranks);
  std::vector<kindling::ConfiguredTraining> made;
  for (const auto& group : groups) {
    made.push_back(configured_surrogate(precision));
    made.back().options.process_group = group;
    made.back().model->apply_init({at::zeros({1, kFeatures})});  // draws the same weights for every rank
  }
  std::vector<std::vector<double>> losses(groups.size(), std::vector<double>(num_steps));
  {
    std::vector<std::jthread> ranks;
    for (std::size_t rank = 0; rank < groups.size(); ++rank)
      ranks.emplace_back([&, rank] {
        const auto number = static_cast<std::int64_t>(rank);
        const std::int64_t first = number * kNy / num_ranks, next = (number + 1) * kNy / num_ranks;
        kindling::Trainer trainer(made[rank].options);
        trainer.prepare_model(made[rank].model);
        train(trainer, first, next - first, type, losses[rank]);
      });
  }
  for (std::size_t step = 0; step < num_steps; ++step) {
    double loss = 0;
    for (const std::vector<double>& of_rank : losses) loss += of_rank[step];
    std::printf("step %zu loss %.16e\n", step + 1, loss);
  }
  return 0;
}
