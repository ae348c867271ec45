// The solver of apps/heat_c on several ranks of MPI: each has a part of the cells and its own network, and
// all networks stay the same one, because they learn from the cells of all ranks.
//
//   mpiexec -n 2 heat_mpi STEPS
#include <kindling/cli/configured_training.h>
#include <kindling/training/trainer.h>
#include <kindling_mpi.h>
#include <torch/types.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <vector>

namespace kd = kindling;

namespace {

constexpr int kCells = 64, kEpoch = 500;  // of all ranks; in time steps

// The cells of one rank, with a neighbour's cell, or one of the boundary, on each side.
class Solver {
 public:
  Solver(MPI_Comm comm, int rank, int size)
      : comm_(comm),
        first_(rank * kCells / size),
        num_cells_((rank + 1) * kCells / size - first_),
        left_(rank > 0 ? rank - 1 : MPI_PROC_NULL),
        right_(rank + 1 < size ? rank + 1 : MPI_PROC_NULL),
        u_(static_cast<std::size_t>(num_cells_) + 2),
        change_(static_cast<std::size_t>(num_cells_)) {
    for (std::size_t i = 0; i < u_.size(); ++i) {
      const double cell = first_ + static_cast<double>(i);
      u_[i] = std::sin(3.0 * cell / kCells) + 0.5 * std::sin(23.0 * cell / kCells);
    }
  }

  void compute_change() {
    exchange();
    for (std::size_t i = 1; i + 1 < u_.size(); ++i) {
      const double conductivity = 0.2 + 0.1 * u_[i] * u_[i];
      change_[i - 1] = conductivity * (u_[i - 1] - 2 * u_[i] + u_[i + 1]);
    }
  }

  void advance() {
    for (std::size_t i = 1; i + 1 < u_.size(); ++i) {
      const double source = 0.05 * std::sin(0.7 * (first_ + static_cast<double>(i)) + 0.05 * step_);
      u_[i] += change_[i - 1] + source;
    }
    ++step_;
  }

  // A batch on the solver's own memory: sample i has the three numbers from u[i] on.
  kd::Batch batch() {
    return {torch::from_blob(u_.data(), {num_cells_, 3}, {1, 1}, torch::kDouble),
            torch::from_blob(change_.data(), {num_cells_, 1}, torch::kDouble)};
  }

 private:
  void exchange() {
    const std::size_t last = u_.size() - 2;
    MPI_Sendrecv(&u_[1], 1, MPI_DOUBLE, left_, 0, &u_[last + 1], 1, MPI_DOUBLE, right_, 0, comm_,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&u_[last], 1, MPI_DOUBLE, right_, 1, &u_[0], 1, MPI_DOUBLE, left_, 1, comm_,
                 MPI_STATUS_IGNORE);
  }

  MPI_Comm comm_;
  int first_, num_cells_, left_, right_;
  double step_ = 0;
  std::vector<double> u_, change_;
};

void run(MPI_Comm comm, int steps) {
  int rank = 0, size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);

  kd::Registry registry;
  kd::register_builtin(registry);
  kd::ConfiguredTraining made = kd::make_training(kd::ConfigDocument::parse(R"(
seed = 1
[model]
name = "mlp_regressor"
hidden = [32, 32]
activation = "tanh"
[optimizer]
name = "adam"
lr = 0.003
[trainer]
precision = "64-true"
num_threads = 1
)",
                                                                            "heat_mpi", "."),
                                                  registry);
  made.options.process_group = kd::join_mpi(comm);
  Solver solver(comm, rank, size);
  solver.compute_change();
  made.model->apply_init({solver.batch()[0].to(
      torch::kFloat)});  // its lazy layers, before all ranks start with the same weights
  kd::Trainer trainer(made.options);
  trainer.prepare_model(made.model);
  for (int step = 1; step <= steps; ++step) {
    trainer.train_step(trainer.prepare_batch(solver.batch()));
    solver.advance();
    solver.compute_change();
    if (step % kEpoch != 0) continue;
    const double loss = trainer.finish_epoch().at("train_loss");
    if (rank == 0) std::printf("step %5d: loss %.17g\n", step, loss);
  }
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int code = 0;
  try {
    run(MPI_COMM_WORLD, argc > 1 ? std::atoi(argv[1]) : 1000);
  } catch (const std::exception& error) {
    std::cerr << "heat_mpi: " << error.what() << "\n";
    MPI_Abort(MPI_COMM_WORLD, 1);  // the other ranks wait
    code = 1;
  }
  MPI_Finalize();
  return code;
}
