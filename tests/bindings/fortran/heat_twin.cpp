// apps/heat_fortran in C++: the same solver, surrogate and steps on the same memory layout. heat_twin
// LAST_STEP PRECISION prints the losses.
#include <ATen/ops/from_blob.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kindling/cli/configured_training.h"
#include "kindling/cli/registry.h"
#include "kindling/config/document.h"
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

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  // The programs in Fortran are not linked with kindling::fast_mkl either: MKL's kernels are to be the same.
  kindling::set_fast_mkl(kindling::FastMkl::off);
  const std::int64_t last_step = std::atoll(argv[1]);
  kindling::Registry registry;
  kindling::register_builtin(registry);
  kindling::ConfigDocument document;
  for (const std::string setting :
       {"model.name = \"mlp_regressor\"", "model.hidden = [32, 32]", "model.activation = \"tanh\"",
        "optimizer.name = \"adam\"", "optimizer.lr = 0.003", "trainer.num_threads = 1"})
    document.set(setting);
  document.set("trainer.precision = \"" + std::string(argv[2]) + "\"");
  const kindling::ConfiguredTraining made = kindling::make_training(std::move(document), registry);
  kindling::Trainer trainer(made.options);
  trainer.prepare_model(made.model);

  Solver solver;
  std::vector<double> features(kCells * kFeatures), rate(kCells);
  const at::Tensor inputs = at::from_blob(features.data(), {kCells, kFeatures}, {1, kCells}, at::kDouble);
  const at::Tensor targets = at::from_blob(rate.data(), {kCells, 1}, at::kDouble);
  const at::ScalarType type = std::string(argv[2]) == "64-true" ? at::kDouble : at::kFloat;
  for (std::int64_t step = 0; step < last_step; ++step) {
    solver.write_features(features);
    solver.compute_rate(rate);
    trainer.train_step(trainer.prepare_batch({inputs.to(type), targets.to(type)}));
    solver.advance(rate, step);
    std::printf("step %lld loss %.16e\n", static_cast<long long>(step + 1), trainer.loss_value());
  }
  return 0;
}
